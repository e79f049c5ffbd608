package splice_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/tautline/tautline/userspace/splice"
)

// TestCloseTwice: by its second Close a connection's name may be another's, whose
// flow is then not for it to forget.
func TestCloseTwice(t *testing.T) {
	set := openDatapath(t).Maps()
	s := splice.New(set, splice.Default())
	ln, err := splice.ListenConfig().Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accept := func() *net.TCPConn {
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c.(*net.TCPConn)
	}
	var first, second net.Conn
	for try := 0; second == nil; try++ {
		if first, err = s.DialBackend(t.Context(), "tcp4", ln.Addr().String(), 0); err != nil {
			t.Fatal(err)
		}
		engine := accept()
		_ = engine.SetLinger(0) // a reset leaves no TIME_WAIT behind
		_ = engine.Close()
		_, _ = first.Read(make([]byte, 1))
		_ = first.Close()

		var d net.Dialer
		d.SetMultipathTCP(false)
		d.LocalAddr = first.LocalAddr()
		d.ControlContext = func(_ context.Context, _, _ string, c syscall.RawConn) (err error) {
			if cerr := c.Control(func(fd uintptr) { err = set.Announce(fd, 0) }); cerr != nil {
				return cerr
			}
			return err
		}
		second, err = d.DialContext(t.Context(), "tcp4", ln.Addr().String())
		// The port is anybody's once it is free: whoever dials on this machine may be
		// given it first. Then another one has to do.
		if err != nil && (try == 100 || !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EADDRNOTAVAIL)) {
			t.Fatal(err)
		}
	}
	defer second.Close()
	defer accept().Close()
	flows := func() (n int) {
		live, err := set.Live()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range live {
			n += k
		}
		return n
	}
	if flows() != 1 {
		t.Fatalf("%d flows of the second connection", flows())
	}
	_ = first.Close()
	if flows() != 1 {
		t.Error("the second Close of the first connection took it away")
	}
}
