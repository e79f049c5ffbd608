package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tautline/tautline/userspace/connect"
	"github.com/tautline/tautline/userspace/upstream"
)

// Backend is where requests can be sent.
type Backend struct {
	Name string
	URL  string      // http or https; a path is put before every request's path
	TLS  *tls.Config // for https; nil = the system's roots
	// Site is whose gateway this is, or the Proxy's own. A request that came
	// through another site is not sent back there. Empty = not known.
	Site string
	// Number is what the Splicer is told. Connections may outlive their backend, so
	// the next one in its slot needs another number where the Splicer keeps
	// accounts by it.
	Number uint32
}

// maxResponseHead bounds the head of a backend's answer.
const maxResponseHead = 1 << 20

// backend is a Backend in use. It outlives its removal for as long as requests
// that were sent to it run.
type backend struct {
	slot      int
	number    uint32 // for the Splicer
	name      string
	site      string
	base      *url.URL
	transport *upstream.Transport
}

// newBackend checks the URL and makes the transport, which cannot dial yet.
func newBackend(slot int, b Backend) (*backend, error) {
	u, err := url.Parse(b.URL)
	if err != nil {
		return nil, fmt.Errorf("backend %s: url: %w", b.Name, err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("backend %s: url %q: scheme is neither http nor https", b.Name, b.URL)
	case u.Host == "":
		return nil, fmt.Errorf("backend %s: url %q: no host", b.Name, b.URL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("backend %s: url %q: only scheme, host, port and path are used", b.Name, b.URL)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = strings.TrimRight(u.RawPath, "/")
	t := &upstream.Transport{
		Addr:             connect.Address(u),
		TLS:              connect.TLS(u, b.TLS),
		HandshakeTimeout: 10 * time.Second,
		IdleTimeout:      connect.IdleLimit,
		MaxHead:          maxResponseHead,
	}
	return &backend{slot: slot, number: b.Number, name: b.Name, site: b.Site, base: u, transport: t}, nil
}

// target returns the URL of a request on this backend, its path spelled as the
// client spelled it.
func (b *backend) target(in *url.URL) *url.URL {
	u := &url.URL{
		Scheme:     b.base.Scheme,
		Host:       b.base.Host,
		Path:       in.Path,
		RawPath:    in.RawPath,
		RawQuery:   in.RawQuery,
		ForceQuery: in.ForceQuery,
	}
	if b.base.Path != "" {
		u.RawPath = b.base.EscapedPath() + in.EscapedPath()
		u.Path = b.base.Path + in.Path
	}
	return u
}

// backendConn counts what is written to a backend, which decides whether a
// request may be sent again, and writes a head and its body in one call, the
// body straight from its buffer.
// It hides every other method of the connection, ReadFrom above all: splice(2)
// does not work on a socket that the kernel splice has claimed.
type backendConn struct {
	net.Conn
	written atomic.Int64

	// The transport flushes a head before it hands over the body. The first Write
	// after join is kept back until the body, or anything else, follows.
	join bool
	head []byte
}

// SyscallConn gives access to the socket, which tells whether it is still open.
func (c *backendConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Write writes and counts. The count runs ahead of the write: a backend may
// answer before Write returns, and must not be taken for one that got nothing.
func (c *backendConn) Write(p []byte) (int, error) {
	if c.join {
		c.join = false
		c.head = append(c.head[:0], p...)
		return len(p), nil
	}
	if err := c.send(nil); err != nil {
		return 0, err
	}
	c.written.Add(int64(len(p)))
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n - len(p)))
	return n, err
}

// joined is the longest body that is copied behind its head.
const joined = 8 << 10

// send writes what was kept back, followed by a body: a short one in the same
// call, a long one too where the connection can.
func (c *backendConn) send(body []byte) error {
	if len(c.head) == 0 {
		return nil
	}
	var parts net.Buffers
	if len(body) <= joined {
		parts = net.Buffers{append(c.head, body...)}
	} else {
		parts = net.Buffers{c.head, body}
	}
	c.head = c.head[:0]
	whole := int64(0)
	for _, p := range parts {
		whole += int64(len(p))
	}
	c.written.Add(whole)
	n, err := writeBuffers(c.Conn, &parts)
	c.written.Add(n - whole)
	return err
}

// writeBuffers writes all parts, in one writev where the connection can. A type
// that only embeds a *net.TCPConn must see each Write: net.Buffers, left to
// itself, would find the embedded writev and go around it.
func writeBuffers(c net.Conn, parts *net.Buffers) (int64, error) {
	switch w := c.(type) {
	case interface {
		WriteBuffers(*net.Buffers) (int64, error)
	}:
		return w.WriteBuffers(parts)
	case *net.TCPConn:
		return parts.WriteTo(w)
	}
	return parts.WriteTo(writeOnly{c})
}

// ReadFrom is called by the transport with the request's body.
func (c *backendConn) ReadFrom(r io.Reader) (int64, error) {
	c.join = false
	if l, ok := r.(*io.LimitedReader); ok {
		if body, ok := l.R.(*bodyReader); ok {
			n, err := body.writeTo(bodyWriter{c}, l.N)
			l.N -= n
			return n, err
		}
	}
	return io.Copy(writeOnly{c}, r)
}

// bodyWriter writes a body behind the head that was kept back.
type bodyWriter struct{ c *backendConn }

func (w bodyWriter) Write(body []byte) (int, error) {
	if len(w.c.head) == 0 {
		return w.c.Write(body)
	}
	if err := w.c.send(body); err != nil {
		return 0, err // the connection is lost: how much went out does not matter
	}
	return len(body), nil
}

// writeOnly hides ReadFrom from io.Copy.
type writeOnly struct{ io.Writer }

// inner unwraps what httptrace reports: the counting connection, and the one
// that Splicer.Begin is to see.
func inner(c net.Conn) (counted *backendConn, spliceable net.Conn) {
	if b, ok := c.(*backendConn); ok {
		return b, b.Conn
	}
	if t, ok := c.(*tls.Conn); ok {
		if b, ok := t.NetConn().(*backendConn); ok {
			return b, c
		}
	}
	return nil, c
}

// AddBackend makes a backend reachable under its slot. The slot must be free.
func (p *Proxy) AddBackend(slot int, spec Backend) error {
	if slot < 0 {
		return errors.New("backend slot is negative")
	}
	b, err := newBackend(slot, spec)
	if err != nil {
		return err
	}
	b.transport.Dial = p.dialer(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.backends.Load()
	if slot < len(old) && old[slot] != nil {
		return fmt.Errorf("backend %s: slot %d is taken by %s", spec.Name, slot, old[slot].name)
	}
	next := make([]*backend, max(len(old), slot+1))
	copy(next, old)
	next[slot] = b
	p.backends.Store(&next)
	p.holding.wake()
	return nil
}

// RemoveBackend takes a backend away: nothing new is sent to it, its idle
// connections are closed, requests that run on it finish. Remove it from the
// Fleet first. Unknown slots are ignored.
func (p *Proxy) RemoveBackend(slot int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.backends.Load()
	if slot < 0 || slot >= len(old) || old[slot] == nil {
		return
	}
	next := make([]*backend, len(old))
	copy(next, old)
	next[slot] = nil
	p.backends.Store(&next)
	p.holding.wake()
	old[slot].transport.Close()
}

// backend returns what a slot holds, or nil.
func (p *Proxy) backend(slot int) *backend {
	all := *p.backends.Load()
	if slot < 0 || slot >= len(all) {
		return nil
	}
	return all[slot]
}

// anyBackend tells whether there is one at all.
func (p *Proxy) anyBackend() bool {
	for _, b := range *p.backends.Load() {
		if b != nil {
			return true
		}
	}
	return false
}

// dialer returns how to dial a backend. Not through the Splicer where TLS is spoken:
// nothing of that can be spliced, and a server whose socket is claimed may not hand its
// encryption to the kernel.
func (p *Proxy) dialer(b *backend) func(ctx context.Context, network, addr string) (net.Conn, error) {
	splicer := p.splicer
	if b.transport.TLS != nil {
		splicer = NoSplice{}
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if d := p.params.Load().Timeouts.Connect; d > 0 {
			ctx = connect.Within(ctx, d)
		}
		c, err := splicer.DialBackend(ctx, network, addr, b.number)
		if err != nil {
			return nil, err
		}
		return &backendConn{Conn: c}, nil
	}
}
