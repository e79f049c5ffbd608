package stream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Main is the server as a process of its own: it prints its address on stdout,
// obeys the lines "go" and "stop" on stdin, each answered by "ok", and ends when
// stdin does, so it never outlives who started it.
func Main(stdin io.Reader, stdout io.Writer) error {
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintln(stdout, s.Addr())
	in := bufio.NewScanner(stdin)
	for in.Scan() {
		switch in.Text() {
		case "go":
			s.Go()
		case "stop":
			s.Stop()
		default:
			return fmt.Errorf("unknown command %q", in.Text())
		}
		fmt.Fprintln(stdout, "ok")
	}
	return in.Err()
}

// Process is a Server in another process.
type Process struct {
	Addr string // host:port
	PID  int

	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	mu  sync.Mutex // one command at a time
}

// Start runs argv, which must end up in Main, on procs CPUs at most. One CPU is
// what a Python server's event loop has. The caller closes the Process.
func Start(ctx context.Context, argv []string, procs int) (*Process, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", procs))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	// A ^C at the terminal must not end the server before its clients.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("stream server: %w", err)
	}
	p := &Process{PID: cmd.Process.Pid, cmd: cmd, in: in, out: bufio.NewReader(out)}
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("stream server told no address: %w", err)
	}
	p.Addr = strings.TrimSpace(line)
	return p, nil
}

// Go lets streams run to their end; see Server.Go.
func (p *Process) Go() error { return p.command("go") }

// Stop finishes all streams; see Server.Stop.
func (p *Process) Stop() error { return p.command("stop") }

func (p *Process) command(c string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := io.WriteString(p.in, c+"\n"); err != nil {
		return fmt.Errorf("stream server: %s: %w", c, err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("stream server: %s: %w", c, err)
	}
	if strings.TrimSpace(line) != "ok" {
		return fmt.Errorf("stream server: %s: got %q", c, line)
	}
	return nil
}

// Close ends the process and waits for it.
func (p *Process) Close() {
	p.in.Close()
	done := make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // how it ended says nothing: it was told to
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-done
	}
}
