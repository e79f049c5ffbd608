package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
)

// inBubble runs a test whose time is its own: it passes only when everybody waits,
// so no limit is missed or met by chance, however slow the machine. Connections are
// pipes, for a wait on a socket would hold the time up.
func inBubble(t *testing.T, f func(t *testing.T, n *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &pipes{}) })
}

// pipes is a network of pipes. As a Splicer it dials them and splices nothing.
type pipes struct {
	NoSplice
	mu  sync.Mutex
	all map[string]*pipeListener
}

// listen opens the next address.
func (n *pipes) listen() *pipeListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]*pipeListener{}
	}
	l := &pipeListener{addr: fmt.Sprintf("pipe%d:80", len(n.all)), conns: make(chan net.Conn), done: make(chan struct{})}
	n.all[l.addr] = l
	return l
}

func (n *pipes) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.all[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nobody listens at %s", addr)
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *pipes) DialBackend(ctx context.Context, network, addr string, _ uint32) (net.Conn, error) {
	return n.dial(ctx, network, addr)
}

type pipeListener struct {
	addr  string
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.addr) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }
