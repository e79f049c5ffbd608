package connect

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const brief = 50 * time.Millisecond

// full returns the address of a server that takes no more connections: its queue is
// full, and the kernel drops what asks for one more.
func full(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: sa.(*unix.SockaddrInet4).Port}
	c, err := net.Dial("tcp4", addr.String()) // the one that it takes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return addr.String()
}

func listen(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

func within(t *testing.T, d time.Duration) context.Context { return Within(t.Context(), d) }

// A server that does not answer is given up in time, as a timeout.
func TestSilentServer(t *testing.T) {
	_, err := Dial(within(t, brief), net.Dialer{}, "tcp", full(t))
	var timeout net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v, want a timeout", err)
	}
}

// Time that the agent loses by itself is not the server's: before the handshake
// begins, and after it has ended.
func TestLateAgent(t *testing.T) {
	const patience = 500 * time.Millisecond // in which localhost is resolved, on a busy machine too
	late := net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error {
		time.Sleep(2 * patience)
		return nil
	}}
	for name, addr := range map[string]string{"literal": listen(t), "name": "localhost:" + port(t, listen(t))} {
		t.Run(name, func(t *testing.T) {
			c, err := Dial(within(t, patience), late, "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		})
	}
	t.Run("established", func(t *testing.T) {
		c, err := net.Dial("tcp", listen(t))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		w := &watch{patience: time.Hour, giveUp: func() { t.Error("an established connection was given up") }}
		w.start()
		w.add(raw)
		w.look()
		if w.end() {
			t.Error("expired")
		}
	})
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Errors of the network and of the caller stay what they are.
func TestOtherEnds(t *testing.T) {
	refuses := listenAndClose(t)
	if _, err := Dial(within(t, time.Minute), net.Dialer{}, "tcp", refuses); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%v, want a refusal", err)
	}
	if _, err := Dial(t.Context(), net.Dialer{}, "tcp", refuses); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("without a deadline: %v, want a refusal", err)
	}
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	time.AfterFunc(brief, cancel)
	if _, err := Dial(ctx, net.Dialer{}, "tcp", full(t)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want a cancellation", err)
	}
	hurried, cancel := context.WithTimeout(within(t, time.Minute), brief)
	defer cancel()
	var timeout net.Error
	if _, err := Dial(hurried, net.Dialer{}, "tcp", full(t)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v, want the timeout of the context", err)
	}
	c, err := Dial(within(t, time.Minute), net.Dialer{}, "tcp", listen(t))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func listenAndClose(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
