package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/agent/telemetry"
	"github.com/tautline/tautline/test/testutil"
)

// An agent is `tautline agent` in a process of its own.
type agent struct {
	t       *testing.T
	addr    string // host:port for clients
	admin   string // URL
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended; then cmd.ProcessState says how
	log     testutil.Journal
	leaving atomic.Bool // it has been told to end
}

const configText = `
listen: "127.0.0.1:0"
admin: "127.0.0.1:0"
drain_timeout: 30s
routing: {policy: round-robin}
backends:
%s
splice: {mode: required, pin_path: %s}
%s
`

// launch starts one before the engines, with more lines of configuration, and
// returns when it listens or has ended.
func launch(t *testing.T, pins string, engines []string, as *syscall.SysProcAttr, more ...string) *agent {
	t.Helper()
	var list strings.Builder
	for i, e := range engines {
		fmt.Fprintf(&list, "  - {name: engine%d, url: \"http://%s\", engine: vllm}\n", i, e)
	}
	file, err := os.CreateTemp(work, "agent-*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(file, configText, list.String(), pins, strings.Join(more, "\n"))
	if err := errors.Join(file.Chmod(0o644), file.Close()); err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, cmd: exec.Command(binary(t), "agent", "--config", file.Name()), done: make(chan struct{})}
	a.cmd.Dir = filepath.Dir(file.Name())
	if as == nil {
		as = &syscall.SysProcAttr{}
	}
	as.Pdeathsig = syscall.SIGKILL // should the tests be killed themselves
	a.cmd.SysProcAttr = as
	a.cmd.Stderr = &a.log
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, url, _ := strings.Cut(lines.Text(), " ")
		if name == "client" {
			a.addr = strings.TrimPrefix(url, "http://")
		}
		if name == "admin" {
			a.admin = url
			break
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = a.cmd.Wait() // ProcessState says more
		close(a.done)
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // it has ended, or the test has failed
		<-a.done
	})
	if a.admin == "" {
		<-a.done
	}
	return a
}

// startAgent launches one and waits until it is ready. It skips the test where the
// kernel cannot splice.
func startAgent(t *testing.T, pins string, engines []string, as *syscall.SysProcAttr, more ...string) *agent {
	t.Helper()
	a := launch(t, pins, engines, as, more...)
	if a.admin == "" {
		if strings.Contains(a.log.String(), "splice is required") {
			t.Skipf("the kernel cannot splice here: %s", a.log.String())
		}
		t.Fatalf("agent ended with %s: %s", a.cmd.ProcessState, a.log.String())
	}
	await(t, "the agent to be ready", func() bool {
		resp, err := http.Get(a.admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return a
}

// end tells the agent to end and wants it to have finished everything.
func (a *agent) end() {
	a.t.Helper()
	a.leaving.Store(true)
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		a.t.Fatal(err)
	}
	<-a.done
	if code := a.cmd.ProcessState.ExitCode(); code != 0 {
		a.t.Errorf("agent ended with %s: %s", a.cmd.ProcessState, a.log.String())
	}
	a.sound()
}

// sound looks for what an agent should never have to say.
func (a *agent) sound() {
	a.t.Helper()
	for line := range strings.Lines(a.log.String()) {
		for _, bad := range []string{"damaged", "panic", "DATA RACE", "level=ERROR"} {
			if strings.Contains(line, bad) {
				a.t.Errorf("agent says: %s", line)
			}
		}
	}
}

func (a *agent) status() (s telemetry.Status) {
	a.t.Helper()
	resp, err := http.Get(a.admin + "/v1/status")
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		a.t.Fatal(err)
	}
	return s
}

// idle waits until the agent's books are empty and wants no response to have been
// damaged.
func (a *agent) idle() telemetry.Status {
	a.t.Helper()
	var s telemetry.Status
	await(a.t, "the agent's books to be empty", func() bool {
		s = a.status()
		left := s.ActiveStreams
		for _, b := range s.Backends {
			left += int64(b.Inflight) + b.UncachedTokens
			if b.Inflight < 0 || b.UncachedTokens < 0 {
				a.t.Fatalf("%s: %d requests and %d tokens in flight", b.Name, b.Inflight, b.UncachedTokens)
			}
		}
		return left == 0
	})
	for outcome, n := range s.Splice.Outcomes {
		if strings.HasPrefix(outcome, "damaged/") {
			a.t.Errorf("%d responses are %s", n, outcome)
		}
	}
	return s
}

// await waits for something that comes about by itself.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
