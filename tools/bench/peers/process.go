package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tautline/tautline/tools/bench/usage"
)

// process is a running command with all its children, in a process group of its own.
type process struct {
	cmd  *exec.Cmd
	log  string        // file with what it printed
	done chan struct{} // closed when the command has ended; then cmd.ProcessState says how
}

// launch starts argv in dir and writes what it prints to log.
func launch(argv []string, dir, log string) (*process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = f, f
	// A group to end it as a whole; a signal should this process be killed itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // ProcessState says more
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// patience is how long a command may take to end in order.
const patience = 3 * time.Second

// stop ends the whole group, in order when it obeys, and waits until nothing of it lives.
func (p *process) stop() error {
	group := p.pid()
	_ = syscall.Kill(-group, syscall.SIGTERM) // ESRCH: it has ended
	deadline := time.Now().Add(patience)
	for len(usage.Group(group)) > 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
	<-p.done
	for deadline = time.Now().Add(patience); len(usage.Group(group)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not end", usage.Group(group))
		}
	}
	return nil
}

// await polls ready until it succeeds, the command ends, or ctx does.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	for {
		last := ready(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended (%s): %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, p.said())
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("%s did not get ready: %s; it said: %s", filepath.Base(p.cmd.Path), last.Error(), p.said())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// said is the end of what the command printed, on one line.
func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return "nothing"
	}
	const most = 600
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return strings.Join(strings.Fields(string(text)), " ")
}
