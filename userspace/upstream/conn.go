package upstream

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffers are borrowed for as long as something is under way: thousands of
// connections may be idle.
var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferBytes) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferBytes) }}
)

const bufferBytes = 4 << 10

// conn is a connection to the server.
type conn struct {
	net.Conn
	br     *bufio.Reader // nil while idle
	broken error         // of the first write that failed; only the writer uses it
	left   int64         // bytes that may still be read; negative: no limit
	read   int64         // bytes read since borrow

	since time.Time // idle since
}

// Read reads for br, within the limit of a head.
func (c *conn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, ErrHeadTooLarge
	}
	if c.left > 0 && int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.Conn.Read(p)
	c.read += int64(n)
	if c.left > 0 {
		c.left -= int64(n)
	}
	return n, err
}

// Write notes what fails: by the time net/http passes an error on it does not say
// whether the connection or the request's body is to blame.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.broken = err
	}
	return n, err
}

// ReadFrom lets the connection take a body in its own way.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	f, ok := c.Conn.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	n, err := f.ReadFrom(r)
	if ofWrite(err) {
		c.broken = err
	}
	return n, err
}

// ofWrite tells whether err came from writing to a connection.
func ofWrite(err error) bool {
	for op := (*net.OpError)(nil); errors.As(err, &op); err = op.Err { // one may hold another
		if op.Op == "write" {
			return true
		}
	}
	return errors.Is(err, net.ErrClosed)
}

// borrow takes a reader for an answer.
func (c *conn) borrow() {
	c.br = readers.Get().(*bufio.Reader)
	c.br.Reset(c)
	c.read = 0
}

// release gives the reader back. It returns false when more was read than the
// answer: whatever that is, nobody asked for it.
func (c *conn) release() bool {
	clean := c.br.Buffered() == 0
	c.br.Reset(nil)
	readers.Put(c.br)
	c.br = nil
	return clean
}

// quiet tells whether an idle connection is still open and nothing has come on it.
// Where that cannot be found out it is taken to be so.
func (c *conn) quiet() bool {
	t, secure := c.Conn.(interface{ NetConn() net.Conn })
	if !secure {
		return silent(c.Conn)
	}
	// Below TLS: its farewell is something that came, too. And above: what came along
	// with the last answer may have been taken from the socket already.
	return silent(t.NetConn()) && c.drained()
}

// drained tells whether a TLS connection holds nothing that nobody has read, and no
// farewell.
func (c *conn) drained() bool {
	if c.SetReadDeadline(time.Unix(1, 0)) != nil { // so that the socket is not waited for
		return false
	}
	var b [1]byte
	n, err := c.Conn.Read(b[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.SetReadDeadline(time.Time{}) == nil
}

// silent tells whether a socket is open and has nothing to be read.
func silent(n net.Conn) bool {
	s, ok := n.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	quiet := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		// As it never blocks, Go's scheduler need not know; see splice's quick.
		_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1,
			unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		quiet = errno == unix.EAGAIN
	})
	return err == nil && quiet
}
