package splice

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
)

type listener struct{ net.Listener }

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, raw := rawTCP(c)
	if tcp == nil {
		return c, nil
	}
	return &clientConn{TCPConn: tcp, raw: raw}, nil
}

// A clientConn is a client's connection: a possible target. It counts what the
// agent writes, because only the sum of that and of what the kernel writes can be
// compared with the socket.
type clientConn struct {
	*net.TCPConn
	raw     syscall.RawConn
	written atomic.Int64

	// Of the response under way; one at a time, so no lock.
	member     bool // in the map of targets, with a forced send buffer
	cookie     uint64
	base       uint64 // position minus written and redirected
	redirected uint64 // bytes, over the life of the connection
}

func (c *clientConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// ReadFrom keeps the way open for sendfile and splice: the socket has no verdict
// program of its own, so both are safe.
func (c *clientConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	c.written.Add(n)
	return n, err
}

// join makes the connection a target.
func (c *clientConn) join(s *Splicer) Reason {
	if c.member {
		return Spliced
	}
	why := ClientGone
	err := control(c.raw, func(fd int) error {
		var err error
		if c.cookie, err = cookieOf(fd); err != nil {
			return err
		}
		why = SendBuffer
		if err = forceSendBuffer(fd, s.p.SendBuffer); err != nil {
			return err
		}
		pos, err := position(fd)
		if err != nil {
			return err
		}
		c.base = pos - uint64(c.written.Load())
		why = joinReason(s.set.AddClient(c.cookie, uintptr(fd)))
		return nil
	})
	if err != nil || why != Spliced {
		return why
	}
	c.member = true
	return Spliced
}

// idle tells whether the client keeps up.
func (c *clientConn) idle(unread int) (bool, error) {
	var ok bool
	err := control(c.raw, func(fd int) error {
		bytes, memory, limit, err := pressure(fd)
		ok = bytes <= unread && memory <= limit/4
		return err
	})
	return ok, err
}

// intact compares the socket with what was written to it.
func (c *clientConn) intact() (bool, error) {
	var pos uint64
	err := control(c.raw, func(fd int) error {
		var err error
		pos, err = position(fd)
		return err
	})
	return pos == c.base+uint64(c.written.Load())+c.redirected, err
}

// cut makes the client see a reset, whatever else is queued. The connection is
// dead afterwards; its owner still has to close it.
func (c *clientConn) cut() {
	_ = c.SetLinger(0)
	_ = c.TCPConn.Close()
}

// A backendConn is a connection to a backend that was announced. It follows the
// framing of what it hands up.
type backendConn struct {
	*net.TCPConn
	raw syscall.RawConn
	set *maps.Set
	key bpf.ConnKey

	mu     sync.Mutex
	read   uint32 // bytes handed up, mod 2^32: the server's position
	fresh  bool   // bytes came since the last write
	over   bool   // the server's side has ended: no message can follow
	frame  framer
	closed bool
	known  bool     // last holds something
	last   bpf.Flow // as of Close
}

func (b *backendConn) Read(p []byte) (int, error) {
	n, err := b.TCPConn.Read(p)
	b.mu.Lock()
	b.read += uint32(n)
	b.fresh = b.fresh || n > 0
	b.frame.feed(p[:n])
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		b.over = true
	}
	b.mu.Unlock()
	return n, err
}

// Write also begins the next exchange: bytes that come after it, when bytes have
// come before it, are a new response. (Or the request was answered before it was
// written to its end: then the framer finds no head and is lost.)
func (b *backendConn) Write(p []byte) (int, error) {
	b.begin()
	return b.TCPConn.Write(p)
}

func (b *backendConn) ReadFrom(r io.Reader) (int64, error) {
	b.begin()
	return b.TCPConn.ReadFrom(r)
}

// WriteTo hides the one of TCPConn: every byte must be seen by Read.
func (b *backendConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{b})
}

func (b *backendConn) begin() {
	b.mu.Lock()
	if b.fresh {
		b.fresh = false
		b.frame.reset()
	}
	b.mu.Unlock()
}

// Close forgets the flow in the kernel before it closes: as long as the socket is
// open nobody else can have a flow of this name.
func (b *backendConn) Close() error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		b.last, b.known, _ = b.set.Forget(b.key)
	}
	b.mu.Unlock()
	return b.TCPConn.Close()
}

// flow returns the connection's numbers, those kept by Close when it is closed.
func (b *backendConn) flow() (bpf.Flow, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return b.last, b.known
	}
	f, ok, err := b.set.Flow(b.key)
	return f, ok && err == nil
}
