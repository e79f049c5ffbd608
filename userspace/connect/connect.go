// Package connect knows where backends listen, and dials them within a time that is
// the network's and not the agent's own.
package connect

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type patienceKey struct{}

// Within returns a context under which Dial gives the network so long. A deadline
// cannot say that: it would count what the agent loses on its way to Dial.
func Within(ctx context.Context, patience time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, patience)
}

// Dial is d.DialContext, save for what Within says: so long may the network take,
// counted from the moment at which the first socket is there. A handshake that the
// kernel has finished is never too late, however long the agent then needs to come
// to it: with net's own deadline an agent that is short of CPU, in a burst of new
// connections, takes healthy backends for dead.
//
// When the time is up the error says so by Timeout. The time that a name takes to be
// resolved is bounded in the same way, on its own. Of a name with several addresses
// all share the one time. The end of ctx ends the dial at once.
func Dial(ctx context.Context, d net.Dialer, network, addr string) (net.Conn, error) {
	patience, _ := ctx.Value(patienceKey{}).(time.Duration)
	if patience <= 0 {
		return d.DialContext(ctx, network, addr)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &watch{patience: patience, named: !literal(addr), giveUp: cancel}
	control := d.ControlContext
	d.ControlContext = func(ctx context.Context, network, addr string, c syscall.RawConn) error {
		w.add(c)
		if control == nil {
			return nil
		}
		return control(ctx, network, addr, c)
	}
	w.start()
	c, err := d.DialContext(ctx, network, addr)
	if expired := w.end(); err != nil && expired {
		var op *net.OpError
		if errors.As(err, &op) {
			op.Err = os.ErrDeadlineExceeded
		}
	}
	return c, err
}

// literal tells whether an address needs no resolving.
func literal(addr string) bool {
	_, err := netip.ParseAddrPort(addr)
	return err == nil
}

// A watch looks at the sockets of a dial when its time is up.
type watch struct {
	patience time.Duration
	named    bool
	giveUp   func()

	mu      sync.Mutex
	timer   *time.Timer
	sockets []syscall.RawConn
	expired bool
	ended   bool
}

func (w *watch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.patience, w.look)
}

// add takes a socket that is about to connect.
func (w *watch) add(c syscall.RawConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sockets) == 0 && !w.ended {
		w.timer.Reset(w.patience)
	}
	w.sockets = append(w.sockets, c)
}

// end returns whether the dial was given up.
func (w *watch) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
	return w.expired
}

// look gives up, unless it is the agent that is late.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	late := !w.named && len(w.sockets) == 0
	for _, c := range w.sockets {
		late = late || !waiting(c)
	}
	if late {
		w.timer.Reset(w.patience)
		return
	}
	w.expired = true
	w.giveUp()
}

// tcpSynSent is TCP_SYN_SENT of linux/tcp_states.h.
const tcpSynSent = 2

// waiting tells whether a socket waits for its peer, or is closed: then there is
// nothing more to come from it.
func waiting(c syscall.RawConn) bool {
	yes := true
	_ = c.Control(func(fd uintptr) { // an error: it is closed
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		yes = err != nil || info.State == tcpSynSent
	})
	return yes
}
