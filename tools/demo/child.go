package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process of ours. It ends when its standard input closes, so that
// it outlives us under no circumstances.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Reader
	name  string
}

// startWait bounds how long a child may take to print a line.
const startWait = 15 * time.Second

// start runs the binary with args. Its log goes to log.
func start(binary, name string, log io.Writer, args ...string) (*child, error) {
	cmd := exec.Command(binary, append(args, "--until-stdin-closes")...)
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &child{cmd: cmd, stdin: stdin, lines: bufio.NewReader(stdout), name: name}, nil
}

// line reads what the child prints next on its standard output.
func (c *child) line(ctx context.Context) (string, error) {
	type result struct {
		text string
		err  error
	}
	got := make(chan result, 1)
	go func() {
		text, err := c.lines.ReadString('\n')
		got <- result{strings.TrimSpace(text), err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			return "", fmt.Errorf("%s ended before it listened", c.name)
		}
		return r.text, nil
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(startWait):
		return "", fmt.Errorf("%s does not listen after %s", c.name, startWait)
	}
}

// stopWait is how long a child may drain before it is killed.
const stopWait = 10 * time.Second

// stop asks the child to end, waits, and kills it when it does not.
func (c *child) stop() {
	kill := time.AfterFunc(stopWait, func() { _ = c.cmd.Process.Kill() })
	defer kill.Stop()
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	c.stdin.Close()
	_ = c.cmd.Wait() // how it ended is in its log
}

// cpu is the processor time that the child has used.
func (c *child) cpu() time.Duration {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name in parentheses may hold spaces; what follows does not.
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	sys, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+sys) * time.Second / userHz
}

// userHz is the unit of /proc/PID/stat, 100 on every Linux that Go runs on.
const userHz = 100
