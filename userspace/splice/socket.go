package splice

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var errMoving = errors.New("write position does not settle")

// control runs f on the socket's descriptor.
func control(c syscall.RawConn, f func(fd int) error) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

func cookieOf(fd int) (uint64, error) {
	n, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("read socket cookie: %w", err)
	}
	return n, nil
}

// queued returns the bytes that the peer has not acknowledged.
func queued(fd int) (int, error) {
	var n int32
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return 0, fmt.Errorf("read SIOCOUTQ: %w", errno)
	}
	return int(n), nil
}

// keepsUp tells whether the peer has acknowledged all but unread bytes, and these
// hold no more than a quarter of the kernel memory that they may: many small
// messages hold much more than their bytes.
func keepsUp(fd, unread int) (bool, error) {
	info, err := memInfo(fd)
	if err != nil {
		return false, err
	}
	switch held := info[memWmemQueued]; {
	case held == 0:
		return true, nil
	case held > info[memSndbuf]/4:
		return false, nil
	}
	bytes, err := queued(fd)
	return bytes <= unread, err
}

// Words of SO_MEMINFO, linux/sock_diag.h.
const (
	memSndbuf     = 3
	memWmemQueued = 5
	memWords      = 9
)

func memInfo(fd int) (info [memWords]uint32, err error) {
	if err := option(fd, unix.SOL_SOCKET, unix.SO_MEMINFO, &info); err != nil {
		return info, fmt.Errorf("read SO_MEMINFO: %w", err)
	}
	return info, nil
}

// option reads an option of a socket; the kernel may know less of it than T holds.
// It is a quick call: it never blocks.
func option[T any](fd int, level, name uintptr, to *T) error {
	size := uint32(unsafe.Sizeof(*to))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), level, name,
		uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// errDead says that the peer has reset the connection, or let it time out.
var errDead = errors.New("connection is dead")

// position returns where the socket's write queue ends: bytes ever written, by
// whomever, plus a constant. The two numbers that it is made of are read one after
// the other, so it reads until no acknowledgement can have come between. A dead
// connection takes no more bytes, and is errDead.
func position(fd int) (uint64, error) {
	var before uint64
	for i := range 100 {
		q, err := queued(fd)
		if err != nil {
			return 0, err
		}
		var after unix.TCPInfo
		if err := option(fd, unix.IPPROTO_TCP, unix.TCP_INFO, &after); err != nil {
			return 0, fmt.Errorf("read TCP_INFO: %w", err)
		}
		if after.State == tcpClose {
			return 0, errDead
		}
		if q == 0 || i > 0 && before == after.Bytes_acked {
			return after.Bytes_acked + uint64(q), nil
		}
		before = after.Bytes_acked
	}
	return 0, errMoving
}

// tcpClose is TCP_CLOSE of linux/tcp_states.h.
const tcpClose = 7

// forceSendBuffer makes the send buffer at least size bytes, past the system's
// limit (CAP_NET_ADMIN).
func forceSendBuffer(fd, size int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size); err != nil {
		return fmt.Errorf("force send buffer: %w", err)
	}
	return nil
}

// rawTCP returns the descriptor access of a TCP connection; nil for anything else.
func rawTCP(c net.Conn) (*net.TCPConn, syscall.RawConn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil, nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return nil, nil
	}
	return t, raw
}
