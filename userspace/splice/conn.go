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
	q := newQuick(c)
	if q == nil {
		return c, nil
	}
	return &clientConn{Conn: c, quick: q}, nil
}

// A clientConn is a client's connection: a possible target. It counts what the
// agent writes, because only the sum of that and of what the kernel writes can be
// compared with the socket.
type clientConn struct {
	net.Conn // the interface: what it lacks is not promoted, see backendConn
	quick    *quick
	written  atomic.Int64

	// Of the response under way; one at a time, so no lock.
	member     bool // in the map of targets, with a forced send buffer
	cookie     uint64
	base       uint64 // position minus written and redirected
	redirected uint64 // bytes, over the life of the connection
}

func (c *clientConn) Read(p []byte) (int, error) { return c.quick.Read(p) }

func (c *clientConn) Write(p []byte) (int, error) {
	n, err := c.quick.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// SyscallConn gives access to the socket.
func (c *clientConn) SyscallConn() (syscall.RawConn, error) { return c.quick.tcp.SyscallConn() }

// CloseWrite is what net/http ends a connection with whose request it did not
// read, so that the client can still read the answer.
func (c *clientConn) CloseWrite() error { return c.quick.tcp.CloseWrite() }

// SetLinger is what the proxy resets a connection with whose answer broke off.
func (c *clientConn) SetLinger(sec int) error { return c.quick.tcp.SetLinger(sec) }

// ReadFrom keeps the way open for sendfile and splice: the socket has no verdict
// program of its own, so both are safe.
func (c *clientConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.quick.tcp.ReadFrom(r)
	c.written.Add(n)
	return n, err
}

// join makes the connection a target.
func (c *clientConn) join(s *Splicer) Reason {
	if c.member {
		return Spliced
	}
	why := ClientGone
	err := control(c.quick.raw, func(fd int) error {
		var err error
		if c.cookie, err = cookieOf(fd); err != nil {
			return err
		}
		why = SendBuffer
		if err = forceSendBuffer(fd, s.p.SendBuffer); err != nil {
			return err
		}
		why = ClientGone
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
	err := control(c.quick.raw, func(fd int) error {
		var err error
		ok, err = keepsUp(fd, unread)
		return err
	})
	return ok, err
}

// intact compares the socket with what was written to it. gone: the client has left,
// nothing can be compared.
func (c *clientConn) intact() (ok, gone bool) {
	var pos uint64
	err := control(c.quick.raw, func(fd int) error {
		var err error
		pos, err = position(fd)
		return err
	})
	if errors.Is(err, errDead) || errors.Is(err, net.ErrClosed) {
		return false, true
	}
	return err == nil && pos == c.base+uint64(c.written.Load())+c.redirected, false
}

// cut makes the client see a reset, whatever else is queued. The connection is
// dead afterwards; its owner still has to close it.
func (c *clientConn) cut() {
	_ = c.quick.tcp.SetLinger(0)
	_ = c.Close()
}

// A backendConn is a connection to a backend that was announced. It follows the
// framing of what it hands up.
//
// It embeds the interface and not the TCPConn: an embedded TCPConn would promote
// its unexported methods too, by which net.Buffers writes past Write.
type backendConn struct {
	net.Conn
	quick *quick
	set   *maps.Set
	key   bpf.ConnKey

	mu       sync.Mutex
	read     uint32 // bytes handed up, mod 2^32: the server's position
	fresh    bool   // bytes came since the last write
	over     bool   // the server's side has ended: no message can follow
	closed   bool   // the flow has been forgotten
	exchange uint64 // number of the request and response under way
	frame    framer
	armed    *Response // has an arm of which the outcome is not known yet
	claimed  bool      // the server's end has been taken
	flow     bpf.Flow  // as it was last seen at rest; only arms change it
}

func (b *backendConn) Read(p []byte) (int, error) {
	n, err := b.quick.Read(p)
	b.mu.Lock()
	b.read += uint32(n)
	b.fresh = b.fresh || n > 0
	b.frame.feed(p[:n])
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		b.over = true
	}
	var ended *Response // of which a splice is over
	if n > 0 && b.armed != nil {
		ended = b.armed
		// Bytes came: the last arm has been taken and its splice is over, or it
		// never will be. Now is the time for the numbers: when the body has been
		// read to its end the transport may give the connection to another
		// request before the copy loop comes to end this one.
		f, ok, err := b.set.Flow(b.key)
		b.settle(f, ok && err == nil)
	}
	b.mu.Unlock()
	if ended != nil && ended.number != 0 {
		ended.s.CatchUp()
	}
	return n, err
}

// Write also begins the next exchange: bytes that come after it, when bytes have
// come before it, are a new response. (Or the request was answered before it was
// written to its end: then the framer finds no head and is lost.)
func (b *backendConn) Write(p []byte) (int, error) {
	b.begin()
	return b.quick.Write(p)
}

// SyscallConn gives access to the socket.
func (b *backendConn) SyscallConn() (syscall.RawConn, error) { return b.quick.tcp.SyscallConn() }

// WriteBuffers is Write of several buffers in one call.
func (b *backendConn) WriteBuffers(v *net.Buffers) (int64, error) {
	b.begin()
	return b.quick.WriteBuffers(v)
}

func (b *backendConn) ReadFrom(r io.Reader) (int64, error) {
	b.begin()
	return b.quick.tcp.ReadFrom(r)
}

// WriteTo hides the one of TCPConn: every byte must be seen by Read.
func (b *backendConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{b})
}

func (b *backendConn) begin() {
	b.mu.Lock()
	if b.fresh {
		b.fresh = false
		b.exchange++
		b.frame.reset()
	}
	b.mu.Unlock()
}

// Close forgets the flow in the kernel before it closes: as long as the socket is
// open nobody else can have a flow of this name. Afterwards somebody may: only the
// first Close forgets it.
func (b *backendConn) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return b.quick.tcp.Close()
	}
	b.closed = true
	f, ok, err := b.set.Forget(b.key)
	if b.armed != nil {
		// The transport may close between a Read of the last bytes and here.
		b.settle(f, ok && err == nil)
	}
	b.mu.Unlock()
	return b.quick.tcp.Close()
}

// settle gives the armed response its numbers; b.mu is held.
func (b *backendConn) settle(f bpf.Flow, ok bool) {
	if ok {
		b.flow = f
		b.armed.settle(f)
	}
	b.armed = nil
}

// enter begins a response on the connection: it returns the number of its exchange
// and the flow at rest; false when the server's end has not been taken. The kernel
// is asked until it has been, once for most connections.
func (b *backendConn) enter() (exchange uint64, f bpf.Flow, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.claimed {
		f, ok, err := b.set.Flow(b.key)
		if err != nil || !ok || f.State != bpf.FlowPassing {
			return 0, bpf.Flow{}, false
		}
		b.claimed, b.flow = true, f
	}
	return b.exchange, b.flow, true
}

// closeIf closes the connection while it still belongs to an exchange: afterwards it
// may be another request's.
func (b *backendConn) closeIf(exchange uint64) {
	b.mu.Lock()
	ours := b.exchange == exchange
	b.mu.Unlock()
	if ours {
		_ = b.Close()
	}
}
