package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// hogs are processes that use a CPU each while a run measures. What a router waits for a
// thread of its own shows only where CPUs are short, as on the host of a busy engine.
type hogs []hog

type hog struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// startHogs starts n of them by argv, a command that runs Hog. stop must follow.
func startHogs(ctx context.Context, argv []string, n int) (hogs, error) {
	var h hogs
	for range n {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.WaitDelay = time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C at the terminal is for the run
		stdin, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("hog: %w", err), h.stop())
		}
		h = append(h, hog{cmd, stdin})
	}
	return h, nil
}

// stop ends them and waits.
func (h hogs) stop() error {
	var errs []error
	for _, g := range h {
		g.stdin.Close()
		if err := g.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("hog: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Hog uses one CPU until stdin ends, so that it outlives no run.
func Hog(stdin io.Reader) {
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		ended.Store(true)
	}()
	for !ended.Load() { // that is what it is for
	}
}
