// Command tautline is an eBPF-accelerated L7 routing agent for LLM inference servers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "dev"

// The exit codes of every command.
const (
	exitOK        = 0
	exitFailed    = 1 // it went wrong; also a file that is named and cannot be read, or is wrong itself
	exitUsage     = 2 // the command line is wrong: commands, arguments, flags and their values
	exitUnhealthy = 3 // unhealthy, or not found
)

// coded is an error that chooses the exit code.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

func usageError(format string, a ...any) error {
	return coded{fmt.Errorf(format, a...), exitUsage}
}

func unhealthy(format string, a ...any) error {
	return coded{fmt.Errorf(format, a...), exitUnhealthy}
}

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		// Ctrl-C again ends at once what takes its time to end well. What an agent leaves in
		// the kernel then is what a killed one leaves: the next one's to clear up.
		signal.Reset(os.Interrupt)
		cancel(fmt.Errorf("%s signal received", s))
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	addCobras(root)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var c coded
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &c):
		if c.error != nil && c.Error() != "" {
			fmt.Fprintln(stderr, "tautline:", c.error)
		}
		return c.code
	default:
		fmt.Fprintln(stderr, "tautline:", err)
		return exitFailed
	}
}
