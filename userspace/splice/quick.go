package splice

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A quick connection is read and written by system calls that Go's scheduler is not
// told of. It need not be, for they never block. Told, it would wake its monitor
// thread at each end of a spliced response, between which the agent sleeps: a tenth
// of the agent's CPU. Errors and deadlines are those of the connection below.
type quick struct {
	tcp      *net.TCPConn
	raw      syscall.RawConn
	in, out  transfer
	received func(fd uintptr) bool // in.receive and out.send, made once
	sent     func(fd uintptr) bool
}

// newQuick returns nil for anything but a TCP connection.
func newQuick(c net.Conn) *quick {
	tcp, raw := rawTCP(c)
	if tcp == nil {
		return nil
	}
	q := &quick{tcp: tcp, raw: raw}
	q.received, q.sent = q.in.receive, q.out.send
	return q
}

// Read is that of net.Conn.
func (q *quick) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := q.in.do(q, "read", q.raw.Read, q.received, p, 0)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Write is that of net.Conn.
func (q *quick) Write(p []byte) (int, error) {
	return q.out.do(q, "write", q.raw.Write, q.sent, p, 0)
}

// WriteBuffers writes all of v, and makes no packet end where a buffer does.
func (q *quick) WriteBuffers(v *net.Buffers) (int64, error) {
	var sum int64
	for i, p := range *v {
		flags := unix.MSG_MORE
		if i == len(*v)-1 {
			flags = 0
		}
		n, err := q.out.do(q, "write", q.raw.Write, q.sent, p, flags)
		sum += int64(n)
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// A transfer is a call of one direction that is under way.
type transfer struct {
	mu    sync.Mutex // held while it waits, as the descriptor's own lock is
	p     []byte     // what is left
	flags int        // of send(2)
	n     int
	errno unix.Errno
}

// do transfers p: step is called by wait until it returns true.
func (t *transfer) do(q *quick, op string, wait func(func(uintptr) bool) error, step func(uintptr) bool, p []byte, flags int) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p, t.flags, t.n, t.errno = p, flags, 0, 0
	err := wait(step)
	t.p = nil
	if failed := (*net.OpError)(nil); errors.As(err, &failed) {
		failed.Op = op // not "raw-read"
	} else if t.errno != 0 {
		err = &net.OpError{
			Op: op, Net: "tcp", Source: q.tcp.LocalAddr(), Addr: q.tcp.RemoteAddr(),
			Err: os.NewSyscallError(op, t.errno),
		}
	}
	return t.n, err
}

// receive reads what there is. It returns false where that is nothing.
func (t *transfer) receive(fd uintptr) bool {
	t.n, t.errno = t.call(unix.SYS_RECVFROM, fd)
	afterRead(fd)
	return t.errno != unix.EAGAIN
}

// send writes until all is written, or something is wrong. It returns false where
// the socket takes no more for now.
func (t *transfer) send(fd uintptr) bool {
	beforeWrite(fd)
	for len(t.p) > 0 {
		var n int
		if n, t.errno = t.call(unix.SYS_SENDTO, fd); t.errno != 0 {
			return t.errno != unix.EAGAIN
		}
		t.n += n
		t.p = t.p[n:]
	}
	return true
}

// call makes the call until no signal interrupts it.
func (t *transfer) call(trap, fd uintptr) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.p))), uintptr(len(t.p)),
			uintptr(t.flags), 0, 0)
		switch errno {
		case 0:
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}
