// Package splice hands token streams to the kernel: after the head, or after the
// first token, the model server's own send reaches the client's socket, and the
// agent sleeps until the last chunk.
//
// A Splicer wraps the client's listener and dials the backends. The copy loop
// tells it when everything that was read has been flushed; the Splicer then offers
// the kernel to take over from exactly this byte. Whatever does not fit stays in
// the agent, with a reason that is counted.
package splice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/userspace/connect"
)

// ErrDamaged says that a client's stream does not hold what it should. The client
// has been set to be reset and the backend's connection is closed: write nothing
// more to the client, above all no terminator.
var ErrDamaged = errors.New("spliced stream is damaged")

// Params are the limits of a splice. Default returns good ones.
type Params struct {
	// Credit is how many bytes an arm lets pass before the agent is asked again;
	// a message is charged 256 bytes more than it has. It bounds what a client
	// that does not read can cost.
	Credit uint32
	// SendBuffer is forced onto clients' sockets, bytes as given to SO_SNDBUFFORCE
	// (the kernel doubles it). It must hold what is unread and a credit of the
	// smallest messages with all overhead, or a model server sees EAGAIN from a
	// socket that is not its own: at least four times Credit.
	SendBuffer int
	// Unread is how many bytes the client may have left unacknowledged for the
	// kernel to be armed; nor may they hold a quarter of the send buffer.
	Unread int
}

// Default returns the parameters that SPLICE was measured with.
func Default() Params {
	return Params{Credit: 256 << 10, SendBuffer: 1 << 20, Unread: 64 << 10}
}

// Validate refuses what could make a model server hang or never splice.
func (p Params) Validate() error {
	switch {
	case p.Credit < 4096:
		return fmt.Errorf("credit %d: less than 4096 bytes never splices", p.Credit)
	case p.Unread < 0:
		return fmt.Errorf("unread %d: negative", p.Unread)
	case p.SendBuffer > 1<<28:
		return fmt.Errorf("send buffer %d: over 256 MiB", p.SendBuffer)
	case p.SendBuffer/4 < int(p.Credit):
		return fmt.Errorf("send buffer %d: must be at least four times the credit %d", p.SendBuffer, p.Credit)
	}
	return nil
}

// Splicer splices responses. It is safe for concurrent use.
type Splicer struct {
	set     *maps.Set // nil: off
	p       Params
	waiting waiting
	counts  [resultCount][reasonCount]atomic.Uint64
}

// New makes a Splicer over the kernel's maps; nil maps make one that never
// splices and wraps nothing. Params must be valid.
func New(set *maps.Set, p Params) *Splicer {
	return &Splicer{set: set, p: p}
}

// On tells whether the Splicer has a kernel side.
func (s *Splicer) On() bool { return s.set != nil }

// Counts calls f with each pair of result and reason and how many responses ended
// so, zeroes included.
func (s *Splicer) Counts(f func(Result, Reason, uint64)) {
	for res := range resultCount {
		for why := range reasonCount {
			f(res, why, s.counts[res][why].Load())
		}
	}
}

// ListenConfig returns a net.ListenConfig whose connections can be spliced: Go
// listens with multipath TCP by default, and such sockets cannot.
func ListenConfig() *net.ListenConfig {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return &lc
}

// WrapListener makes the listener's connections possible targets. Give it the
// plain TCP listener; one made without ListenConfig never splices where the client
// speaks multipath TCP. When off it returns ln itself.
func (s *Splicer) WrapListener(ln net.Listener) net.Listener {
	if s.set == nil {
		return ln
	}
	return &listener{Listener: ln}
}

// DialBackend connects to a backend and announces the connection to the kernel
// first, so that the server's end can be claimed. A connection that cannot be
// announced works, unspliced. It dials by connect.Dial.
func (s *Splicer) DialBackend(ctx context.Context, network, addr string, backend uint32) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	if s.set == nil {
		return connect.Dial(ctx, d, network, addr)
	}
	d.ControlContext = func(_ context.Context, _, _ string, c syscall.RawConn) error {
		// An error only means that this connection is not claimed: it is seen,
		// and counted, when a response begins.
		_ = control(c, func(fd int) error { return s.set.Announce(uintptr(fd), backend) })
		return nil
	}
	c, err := connect.Dial(ctx, d, network, addr)
	if err != nil {
		return nil, err
	}
	q := newQuick(c)
	if q == nil {
		return c, nil
	}
	key, ok := keyOf(q.tcp)
	if !ok {
		return c, nil
	}
	return &backendConn{Conn: c, quick: q, set: s.set, key: key}, nil
}

// keyOf returns the kernel's name of a connection that this agent dialled.
func keyOf(c *net.TCPConn) (bpf.ConnKey, bool) {
	local, err1 := netip.ParseAddrPort(c.LocalAddr().String())
	remote, err2 := netip.ParseAddrPort(c.RemoteAddr().String())
	if err1 != nil || err2 != nil {
		return bpf.ConnKey{}, false
	}
	return maps.Conn{Server: remote, Agent: local}.Key(), true
}
