// Package integration runs the built program as a process of its own, before
// engines and clients that live in the tests: what is promised of the splice
// must hold for the agent that is shipped, not only for its packages. It needs
// root. Nothing is left behind: no process, mount or pin.
package integration

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// `make soak` gives larger ones.
var (
	streams  = flag.Int("streams", 300, "watermarked streams in all")
	clients  = flag.Int("clients", 40, "watermarked streams at a time")
	restarts = flag.Int("restarts", 1, "times that the agent is told to end and is started again in the middle")
	think    = flag.Duration("think", 0, "how long each client waits between two streams, on average")
	abort    = flag.Duration("abort", 2*time.Second, "how late an engine may be told that its client has left, beyond what the machine needs without an agent in the same run")
	open     = flag.Int("open", 500, "streams that are open and silent at a time")
	answers  = flag.Int("answers", 10, "responses whose wake-ups are counted, one after the other")
	rate     = flag.Float64("rate", 5000, "tokens per second of these")
)

// work is a directory that every user can enter; the tests' own are only root's.
var work string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "tautline-integration-")
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		work = dir
		defer os.RemoveAll(dir)
		return m.Run()
	}())
}

var build struct {
	once sync.Once
	path string
	err  error
}

// binary is the program: the one that TAUTLINE names, or one built from this tree.
func binary(t *testing.T) string {
	t.Helper()
	build.once.Do(func() {
		if build.path = os.Getenv("TAUTLINE"); build.path != "" {
			build.path, build.err = filepath.Abs(build.path)
			return
		}
		build.path = filepath.Join(work, "tautline")
		cmd := exec.Command("go", "build", "-trimpath", "-o", build.path, "github.com/tautline/tautline/cmd/tautline")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("build: %w: %s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.path
}

// bpffs mounts a bpf file system for the test, and skips it where it cannot.
func bpffs(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the splice needs root")
	}
	dir, err := os.MkdirTemp(work, "bpf-")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Skipf("no bpf file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
