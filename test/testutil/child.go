package testutil

import (
	"io"
	"os/exec"
	"strings"
	"testing"
)

// Start runs a command that ends when its input does, and returns its input and
// output. With the test its input is closed; it must then end well. What it wrote
// to its standard error is part of the failure.
func Start(t testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out io.Reader) {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err = cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // it may be closed already
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", cmd.Path, err, stderr.String())
		}
	})
	return in, out
}
