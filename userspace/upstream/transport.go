// Package upstream sends HTTP/1.1 requests over kept connections, in the
// goroutine of the caller.
//
// http.Transport gives each connection two goroutines of its own and hands every
// request and answer from one to the other. To a router whose answers are carried
// by the kernel these hand-overs are a seventh of its work, and to one with thousands of
// open streams their stacks and buffers are a fifth of its memory (DECISIONS.md).
// Parsing and writing messages stays with net/http.
package upstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"sync"
	"time"
)

// Transport is an http.RoundTripper towards one host. It is safe for concurrent use
// and must not be copied. Set its fields before the first request.
//
// Of httptrace it calls GetConn, GotConn, WroteRequest and Got1xxResponse; GetConn
// again, in the caller's goroutine, when a request is sent anew (see RoundTrip): an
// error is then about what has happened since, be it that there is no connection. An answer
// that begins while a request's body is still being written is passed on at once. A
// request's body is closed in every case, possibly after RoundTrip has returned. The
// body of an answer must be closed unless it was read to its end; closing it earlier
// closes the connection, and so does the end of the request's context. A body that is
// not empty has the methods Ready() bool and Peek, see body and peek.go.
type Transport struct {
	// Addr is the host and port to dial.
	Addr string
	// Dial opens a connection.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// TLS makes it speak TLS, not nil for https. ServerName must be set in it.
	TLS *tls.Config
	// HandshakeTimeout bounds the TLS handshake; 0 = only the context does.
	HandshakeTimeout time.Duration
	// IdleTimeout is how long a connection is kept that has nothing to do; 0 = for good.
	IdleTimeout time.Duration
	// MaxHead bounds the head of an answer, in bytes.
	MaxHead int64

	mu     sync.Mutex
	idle   []*conn // the most recently used last
	reaper *time.Timer
	waking bool // the reaper is set
	closed bool
}

// ErrRequest says that a request could not be written for a reason of its own: it is
// malformed, its body broke off or has another length than it should.
var ErrRequest = errors.New("request cannot be sent")

// ErrHeadTooLarge says that the head of an answer is longer than Transport.MaxHead.
var ErrHeadTooLarge = errors.New("response head is too large")

// errStatus says that an answer's status is none (RFC 9110, 15).
var errStatus = errors.New("response status is below 100")

// RoundTrip implements http.RoundTripper. A request without a body that is safe to
// repeat is sent a second time when a kept connection turns out to be closed; what
// else to repeat is the caller's to decide.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := httptrace.ContextClientTrace(r.Context())
	if trace == nil {
		trace = &httptrace.ClientTrace{}
	}
	for {
		if trace.GetConn != nil {
			trace.GetConn(t.Addr)
		}
		c, reused, err := t.conn(r.Context())
		if err != nil {
			closeBody(r)
			return nil, err
		}
		if trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{Conn: c.Conn, Reused: reused})
		}
		x := &exchange{t: t, c: c, ctx: r.Context(), trace: trace}
		resp, err := x.do(r)
		if err != nil && reused && c.read == 0 && repeatable(r) && r.Context().Err() == nil {
			continue // each turn uses up a kept connection, a new one is the last
		}
		return resp, err
	}
}

// repeatable tells whether sending r twice does no harm.
func repeatable(r *http.Request) bool {
	if r.Body != nil && r.Body != http.NoBody {
		return false
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// conn returns a connection that nobody else uses.
func (t *Transport) conn(ctx context.Context) (c *conn, reused bool, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, false, err
	}
	for {
		c := t.take()
		if c == nil {
			break
		}
		if c.quiet() {
			return c, true, nil
		}
		_ = c.Close() // the server's word that it will answer nothing here
	}
	n, err := t.Dial(ctx, "tcp", t.Addr)
	if err != nil {
		return nil, false, err
	}
	if t.TLS != nil {
		if n, err = t.handshake(ctx, n); err != nil {
			return nil, false, err
		}
	}
	return &conn{Conn: n}, false, nil
}

// handshake wraps n, which it closes when that fails.
func (t *Transport) handshake(ctx context.Context, n net.Conn) (net.Conn, error) {
	if t.HandshakeTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.HandshakeTimeout)
		defer cancel()
	}
	secure := tls.Client(n, t.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = n.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// exchange is a request and its answer on a connection.
type exchange struct {
	t     *Transport
	c     *conn
	ctx   context.Context
	trace *httptrace.ClientTrace
	stop  func() bool   // false: the context has ended and the connection is being closed
	shut  chan struct{} // closed when it is
	wrote chan error    // holds the outcome of writing once it is known
}

// do sends r and reads the head of the answer. On an error the connection is closed.
func (x *exchange) do(r *http.Request) (*http.Response, error) {
	x.shut = make(chan struct{})
	x.stop = context.AfterFunc(x.ctx, func() { _ = x.c.Close(); close(x.shut) })
	x.wrote = make(chan error, 1)
	if n, ok := size(r); ok && n <= inlineBytes {
		x.write(r)
	} else {
		go x.write(r)
	}
	resp, err := x.head(r)
	if err != nil {
		x.end(false)
		return nil, x.cause(r, err)
	}
	if resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		x.end(!resp.Close && resp.StatusCode != http.StatusSwitchingProtocols)
		return resp, nil
	}
	resp.Body = &body{src: resp.Body, x: x, keep: !resp.Close, chunked: Chunked(resp)}
	return resp, nil
}

// Chunked tells whether an answer's body came in HTTP chunks.
func Chunked(resp *http.Response) bool {
	return len(resp.TransferEncoding) == 1 && resp.TransferEncoding[0] == "chunked"
}

// inlineBytes is how long a body may be to be written before the answer is looked
// for: so much fits into the buffers of two sockets whatever the server does.
const inlineBytes = 8 << 10

// size returns the length of a request's body that is in memory, as the readers of
// packages bytes and strings tell it; false when somebody may have to be waited for.
func size(r *http.Request) (int, bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return 0, true
	}
	m, ok := r.Body.(interface{ Len() int })
	if !ok {
		return 0, false
	}
	return m.Len(), true
}

// write writes the request and closes its body.
func (x *exchange) write(r *http.Request) {
	w := writers.Get().(*bufio.Writer)
	w.Reset(x.c)
	err := r.Write(w) // calls WroteRequest
	if err == nil {
		err = w.Flush()
	}
	w.Reset(nil)
	writers.Put(w)
	switch {
	case err == nil:
	case x.c.broken != nil:
		err = x.c.broken // an answer may already be there to be read
	default:
		err = fmt.Errorf("%w: %w", ErrRequest, err)
		_ = x.c.Close() // the server would wait for the rest
	}
	x.wrote <- err
}

// head reads the head of the answer, and what comes before it.
func (x *exchange) head(r *http.Request) (*http.Response, error) {
	x.c.borrow()
	x.c.left = x.t.MaxHead
	for {
		resp, err := http.ReadResponse(x.c.br, r)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 100 {
			return nil, errStatus // net/http would give it a body, which 1xx have none of
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			x.c.left = -1
			return resp, nil
		}
		if got := x.trace.Got1xxResponse; got != nil {
			if err := got(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
		}
	}
}

// cause says why there is no answer, now that the connection is closed: the end of
// the context, what ended the writing, or what ended the reading.
func (x *exchange) cause(r *http.Request, read error) error {
	wrote := x.outcome(r)
	switch cause := context.Cause(x.ctx); {
	case cause != nil:
		return cause
	case wrote != nil && !errors.Is(wrote, net.ErrClosed):
		return wrote
	case errors.Is(read, io.EOF):
		return io.ErrUnexpectedEOF // the end of a connection is no answer
	}
	return read
}

// patience is how long a request may still be written when its answer is over.
const patience = 50 * time.Millisecond

// outcome waits until nothing more is written to the closed connection. A body that
// comes from elsewhere may keep the writer from noticing; it is not waited for long.
func (x *exchange) outcome(r *http.Request) error {
	if _, ok := size(r); ok {
		return <-x.wrote
	}
	_, err := x.soon()
	return err
}

// soon waits a little for the outcome of writing.
func (x *exchange) soon() (known bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-x.wrote:
		return true, err
	case <-timer.C:
		return false, nil
	}
}

// end ends the exchange: the connection is kept for another one, or closed.
func (x *exchange) end(keep bool) {
	clean := x.c.release()
	if !x.stop() {
		// Whoever waits for the answers' ends may take away next what closing needs.
		<-x.shut
		return
	}
	if !clean || !keep {
		_ = x.c.Close()
		return
	}
	select {
	case err := <-x.wrote:
		x.keep(err == nil)
	default:
		// The answer was faster than the word that its request is out; or the server
		// has answered what it did not read.
		go func() {
			known, err := x.soon()
			x.keep(known && err == nil)
		}()
	}
}

func (x *exchange) keep(good bool) {
	if good {
		x.t.put(x.c)
		return
	}
	_ = x.c.Close()
}

// body is the body of an answer.
type body struct {
	src     io.Reader
	x       *exchange
	keep    bool
	chunked bool
	done    error // what Read says from now on; nil: go on
}

// Ready tells whether the first Read need not wait: bytes of the body have come with the
// head, in chunks one that is whole. (Of half a chunk net/http hands nothing up.)
func (b *body) Ready() bool {
	if b.done != nil {
		return false
	}
	raw, _ := b.x.c.br.Peek(b.x.c.br.Buffered())
	if !b.chunked {
		return len(raw) > 0
	}
	size, data, _ := bytes.Cut(raw, []byte("\r\n"))
	n, err := strconv.ParseUint(string(size), 16, 32)
	return err == nil && uint64(len(data)) >= n+2
}

// errClosed is what a body says that was closed.
var errClosed = errors.New("response body is closed")

func (b *body) Read(p []byte) (int, error) {
	if b.done != nil {
		return 0, b.done
	}
	n, err := b.src.Read(p)
	if err != nil {
		b.done = err
		b.x.end(b.keep && errors.Is(err, io.EOF))
		if cause := context.Cause(b.x.ctx); cause != nil && !errors.Is(err, io.EOF) {
			b.done = cause
		}
	}
	return n, b.done
}

// Close does not read the rest: it may be long, or never come.
func (b *body) Close() error {
	if b.done == nil {
		b.done = errClosed
		b.x.end(false)
	}
	return nil
}
