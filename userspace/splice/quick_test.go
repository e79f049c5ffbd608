package splice

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quickPair returns a quick connection, the net.TCPConn below it, and its peer.
func quickPair(t *testing.T) (*quick, *net.TCPConn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return newQuick(c), c.(*net.TCPConn), peer.(*net.TCPConn)
}

// A quick connection answers as the net.TCPConn below it does.
func TestQuickAnswersAsTCPConnDoes(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 1<<20)
	for _, c := range []struct {
		name string
		do   func(t *testing.T, c io.ReadWriter, tcp, peer *net.TCPConn) (int, error)
	}{
		{"read of nothing", func(_ *testing.T, c io.ReadWriter, _, _ *net.TCPConn) (int, error) { return c.Read(nil) }},
		{"write of nothing", func(_ *testing.T, c io.ReadWriter, _, _ *net.TCPConn) (int, error) { return c.Write(nil) }},
		{"read of the end", func(_ *testing.T, c io.ReadWriter, _, peer *net.TCPConn) (int, error) {
			peer.Close()
			return c.Read(make([]byte, 9))
		}},
		{"read after a reset", func(_ *testing.T, c io.ReadWriter, _, peer *net.TCPConn) (int, error) {
			_ = peer.SetLinger(0)
			peer.Close()
			return c.Read(make([]byte, 9))
		}},
		{"read past its deadline", func(_ *testing.T, c io.ReadWriter, tcp, _ *net.TCPConn) (int, error) {
			_ = tcp.SetReadDeadline(time.Unix(1, 0))
			return c.Read(make([]byte, 9))
		}},
		{"read at its deadline", func(_ *testing.T, c io.ReadWriter, tcp, _ *net.TCPConn) (int, error) {
			_ = tcp.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			return c.Read(make([]byte, 9))
		}},
		{"read while it is closed", func(_ *testing.T, c io.ReadWriter, tcp, _ *net.TCPConn) (int, error) {
			defer time.AfterFunc(5*time.Millisecond, func() { tcp.Close() }).Stop()
			return c.Read(make([]byte, 9))
		}},
		{"read when closed", func(_ *testing.T, c io.ReadWriter, tcp, _ *net.TCPConn) (int, error) {
			tcp.Close()
			return c.Read(make([]byte, 9))
		}},
		{"write when closed", func(_ *testing.T, c io.ReadWriter, tcp, _ *net.TCPConn) (int, error) {
			tcp.Close()
			return c.Write([]byte("x"))
		}},
		{"write after a reset", func(t *testing.T, c io.ReadWriter, tcp, peer *net.TCPConn) (int, error) {
			_ = peer.SetLinger(0)
			peer.Close()
			if _, err := tcp.Read(make([]byte, 9)); err == nil {
				t.Fatal("no reset")
			}
			return c.Write([]byte("x"))
		}},
		{"write past its deadline", func(_ *testing.T, c io.ReadWriter, tcp, _ *net.TCPConn) (int, error) {
			_ = tcp.SetWriteDeadline(time.Unix(1, 0))
			return c.Write([]byte("x"))
		}},
		{"whole write to a slow reader", func(_ *testing.T, c io.ReadWriter, _, peer *net.TCPConn) (int, error) {
			go func() {
				_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{peer}, make([]byte, 999))
			}()
			return c.Write(large)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, tcp, peer := quickPair(t)
			n, err := c.do(t, q, tcp, peer)
			_, tcp, peer = quickPair(t)
			wantN, wantErr := c.do(t, tcp, tcp, peer)
			if n != wantN || !sameError(err, wantErr) {
				t.Errorf("%d, %#v; TCPConn %d, %#v", n, err, wantN, wantErr)
			}
		})
	}
}

// sameError tells whether the two are alike but for the ports in them.
func sameError(a, b error) bool {
	var x, y *net.OpError
	if !errors.As(a, &x) || !errors.As(b, &y) {
		return reflect.DeepEqual(a, b) // nil, or io.EOF itself
	}
	for _, known := range []error{os.ErrDeadlineExceeded, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(a, known) != errors.Is(b, known) {
			return false
		}
	}
	return x.Op == y.Op && x.Net == y.Net && (x.Addr == nil) == (y.Addr == nil) &&
		x.Timeout() == y.Timeout() && x.Err.Error() == y.Err.Error()
}

// A write that its deadline cuts off says how much was written.
func TestQuickWriteIsCutOff(t *testing.T) {
	q, tcp, peer := quickPair(t)
	text := make([]byte, 64<<20)
	_ = tcp.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	n, err := q.Write(text)
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 64<<20 {
		t.Fatalf("%d, %v", n, err)
	}
	tcp.Close()
	got, err := io.Copy(io.Discard, peer)
	if err != nil || got != int64(n) {
		t.Errorf("%d bytes came (%v), %d were written", got, err, n)
	}
}

// Bytes arrive as they were sent, both ways at once, in pieces of any size.
func TestQuickCarriesBothWays(t *testing.T) {
	q, tcp, peer := quickPair(t)
	text := []byte(strings.Repeat("0123456789abcdef", 1<<14))
	send := func(w io.Writer) error {
		for rest := text; len(rest) > 0; {
			n := min(1+rand.IntN(5000), len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	}
	errs := make(chan error, 3)
	go func() { errs <- errors.Join(send(q), tcp.CloseWrite()) }()
	go func() { errs <- errors.Join(send(peer), peer.CloseWrite()) }()
	receive := func(r io.Reader) error {
		b, err := io.ReadAll(r)
		if !bytes.Equal(b, text) {
			err = errors.Join(err, errors.New("other bytes came"))
		}
		return err
	}
	go func() { errs <- receive(peer) }()
	if err := receive(struct{ io.Reader }{q}); err != nil {
		t.Error(err)
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Several buffers are one message to the peer: a server that reads once has all.
func TestQuickWritesBuffersAtOnce(t *testing.T) {
	q, _, peer := quickPair(t)
	n, err := q.WriteBuffers(&net.Buffers{[]byte("head "), nil, []byte("and "), []byte("body")})
	if err != nil || n != 13 {
		t.Fatal(n, err)
	}
	b := make([]byte, 99)
	if n, err := peer.Read(b); err != nil || string(b[:n]) != "head and body" {
		t.Errorf("%q, %v", b[:n], err)
	}
}
