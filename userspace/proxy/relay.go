package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/upstream"
)

// relay passes a backend's answer on to the client.
func (x *exchange) relay(a *attempt) verdict {
	resp := a.resp
	x.sum.Code = resp.StatusCode
	var rw Rewriter
	if x.readable {
		var why Refusal
		rw, why = x.p.pinner.Response(a.backend.name, x.pin, resp.StatusCode, resp.Header)
		if why != RefusalNone {
			x.p.log.Warn("answer cannot be passed on", "id", x.id, "backend", a.backend.name, "reason", why.String())
			return x.refuse(why, "")
		}
	}
	x.writeHead(a, rw != nil)
	if resp.Body == http.NoBody || x.r.Method == http.MethodHead {
		return answered
	}
	c := x.newCopying(a, rw)
	defer c.release()
	switch {
	case !c.flush:
	case c.more():
		c.early = false
	case x.rc.Flush() != nil: // a head that came alone: a client may be waiting for it
		return x.clientGone()
	}
	return c.run()
}

// judge tells the accounts what the answer's code says about the backend.
func (x *exchange) judge(a *attempt) {
	now, code := x.p.clock(), a.code
	switch {
	case code >= 200 && code < 300:
		x.ticket.Confirm(now)
	case code == http.StatusTooManyRequests || code >= 500:
		x.ticket.Refused(now)
	default:
		x.ticket.Withdraw(now)
	}
	if x.p.backend(a.backend.slot) == a.backend {
		x.p.router.Status(a.backend.slot, code, now)
	}
}

// writeHead writes the response's head.
func (x *exchange) writeHead(a *attempt, rewritten bool) {
	h := x.w.Header()
	copyHeader(h, a.resp.Header)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // or the server would guess one
	}
	if rewritten {
		dropFields(h, ofBytes)
		dropFields(h, ofAnswer)
		dropFields(a.resp.Trailer, ofBytes)
	}
	if _, ok := h[requestIDHeader]; !ok {
		h[requestIDHeader] = []string{x.id}
	}
	if x.params.DebugHeaders {
		h["X-Tautline-Backend"] = []string{a.backend.name}
		h["X-Tautline-Outcome"] = []string{x.decided.Outcome.String()}
		if x.held != HoldNone {
			h["X-Tautline-Held"] = []string{x.held.String() + " after " + x.waited.String()}
		}
	}
	if x.r.ProtoAtLeast(1, 1) {
		for k := range a.resp.Trailer {
			h["Trailer"] = append(h["Trailer"], k)
		}
	}
	x.w.WriteHeader(a.resp.StatusCode)
}

// clientGone notes that the client went away.
func (x *exchange) clientGone() verdict {
	x.sum.Abort = AbortClient
	if errors.Is(context.Cause(x.r.Context()), errDrain) {
		x.sum.Abort = AbortDrain
	}
	return broken
}

// copying is the copy loop of one response body.
type copying struct {
	x       *exchange
	a       *attempt
	body    io.Reader
	small   []byte      // what a stream is read with, as long as it comes in drops
	buf     *[]byte     // of readBytes; nil while small will do
	rw      Rewriter    // nil: byte for byte
	between func() bool // whether rw stands between two events; nil: not asked
	out     []byte      // what rw made; reused
	flush   bool        // flush after every write
	early   bool        // the kernel may take the first token too: it can tell, and the head was flushed alone
	first   firstToken
	token   atomic.Bool  // the first token has been relayed, or has passed in the kernel
	window  *usageWindow // nil: no usage to look for
	spliced SplicedResponse
	ended   bool  // spliced knows that the body was read to its end
	read    int64 // body bytes of the backend that were passed
	sent    int64 // body bytes written to the client
	idle    time.Duration
	stop    func() bool // takes the wake-up of a blocked write away
}

func (x *exchange) newCopying(a *attempt, rw Rewriter) *copying {
	resp := a.resp
	events := eventStream(resp.Header)
	c := &copying{
		x: x, a: a, rw: rw,
		body:  resp.Body,
		flush: events || resp.ContentLength < 0,
		idle:  x.params.Timeouts.Idle,
	}
	if c.flush {
		// A stream waits most of its life, and there are thousands.
		c.small = make([]byte, streamBytes)
	}
	plain := !encoded(resp.Header)
	switch {
	case a.code != resp.StatusCode: // a refusal has no tokens
	case events && plain && x.api == key.APIResponses:
		c.first.sign = signDelta
	case events && plain:
		c.first.sign = signData
	case events, resp.ContentLength < 0 && x.prompt.Stream:
		c.first.sign = signBytes
	}
	if x.api != key.APIUnknown && plain && resp.StatusCode < 300 {
		c.window = x.p.windows.Get().(*usageWindow)
		c.window.reset()
	}
	if er, ok := rw.(EventRewriter); ok && events {
		c.between = er.AtBoundary
	}
	info := ResponseInfo{
		Backend:        a.backend.number,
		ClientHTTP11:   x.r.ProtoAtLeast(1, 1),
		ClientTLS:      x.r.TLS != nil,
		BackendChunked: upstream.Chunked(resp),
		ClientChunked:  x.r.ProtoAtLeast(1, 1) && (rw != nil || resp.Header.Get("Content-Length") == ""),
		Rewritten:      rw != nil,
		Deltas:         c.between != nil,
	}
	if c.window != nil && x.prompt.Usage && rw == nil {
		info.Usage = c.window.see
	}
	if c.early = c.first.sign == signData && rw == nil; c.early {
		info.FirstToken = c.firstToken
	}
	c.spliced = x.p.splicer.Begin(clientConn(x.r), a.conn, info)
	if by, ok := c.spliced.(Redirecting); ok {
		a.moving.Store(&movement{by: by})
	}
	// A client that has gone, or a drain that is over, ends a write that hangs.
	c.stop = context.AfterFunc(x.r.Context(), func() { _ = x.rc.SetWriteDeadline(time.Unix(1, 0)) })
	return c
}

// release gives back what was borrowed, on every way out, a panic's too: the
// kernel must not go on writing to a client whose handler is gone.
func (c *copying) release() {
	if !c.ended {
		c.spliced.Abort()
	}
	c.stop()
	if c.buf != nil {
		c.x.p.reads.Put(c.buf)
	}
	if c.window != nil {
		c.x.p.windows.Put(c.window)
	}
}

// more tells whether body bytes have come together with the head, of which none will
// be held back: then both go out in one write.
func (c *copying) more() bool {
	b, ok := c.body.(interface{ Ready() bool })
	return ok && c.rw == nil && b.Ready()
}

func eventStream(h http.Header) bool {
	return strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/event-stream")
}

// run copies until the body's end. Each read is written, and flushed where the
// answer streams, before the next one.
func (c *copying) run() verdict {
	buf := c.small
	for {
		if c.buf == nil && len(buf) == 0 {
			c.buf = c.x.p.reads.Get().(*[]byte)
			buf = *c.buf
		}
		if c.early && c.read == 0 || c.flush && c.token.Load() {
			c.offer()
		}
		if c.idle > 0 {
			c.a.timer.Reset(c.idle)
		}
		n, err := c.body.Read(buf)
		c.a.stopTimer() // what follows has a time of its own, see write
		if n > 0 && !c.pass(buf[:n]) {
			return c.x.clientGone()
		}
		switch {
		case err == nil:
			if c.buf == nil && n == len(buf) {
				buf = nil // there is more where that came from
			}
		case errors.Is(err, io.EOF):
			return c.end()
		default:
			return c.cut(err)
		}
	}
}

// offer tells the Splicer what has been delivered, where the kernel may take over:
// behind the head, if the kernel can tell the first token, and behind that.
func (c *copying) offer() {
	if c.rw == nil || c.between != nil && c.between() {
		c.spliced.Flushed(c.read)
	}
}

// pass writes what was read. It returns false when the client is gone.
func (c *copying) pass(p []byte) bool {
	c.read += int64(len(p))
	seen := !c.token.Load() && c.first.see(p)
	if c.window != nil {
		c.window.see(p)
	}
	if c.rw != nil {
		c.out = c.rw.Append(c.out[:0], p)
		p = c.out
	}
	ok := c.write(p)
	if seen {
		c.firstToken(0)
	}
	return ok
}

// firstToken is told of the first token, once, by whomever: it has come, that long ago.
func (c *copying) firstToken(ago time.Duration) {
	c.token.Store(true)
	now := c.x.p.clock()
	at := now - ago
	if at < c.x.began {
		at = now // in a time namespace the kernel's clock is not the agent's
	}
	c.x.ticket.FirstToken(now)
	c.x.p.recorder.FirstToken(c.a.backend.name, at-c.x.began)
}

// write writes, and flushes where the answer streams.
func (c *copying) write(p []byte) bool {
	if len(p) == 0 {
		return true
	}
	if c.idle > 0 {
		_ = c.x.rc.SetWriteDeadline(time.Now().Add(c.idle)) // not supported only outside a server
		if c.x.r.Context().Err() != nil {
			return false // its wake-up may have come before this deadline, which hides it
		}
	}
	n, err := c.x.w.Write(p)
	c.sent += int64(n)
	if err == nil && c.flush {
		err = c.x.rc.Flush()
	}
	return err == nil
}

// end finishes a body that was read to its end.
func (c *copying) end() verdict {
	x := c.x
	if c.rw != nil && !c.write(c.rw.Finish(c.out[:0])) {
		return x.clientGone()
	}
	c.ended = true
	if err := c.spliced.End(); err != nil {
		x.p.log.Warn("spliced response is damaged: client reset", "id", x.id, "backend", c.a.backend.name, "error", err)
		x.sum.Abort = AbortSplice
		reset(clientConn(x.r))
		return broken
	}
	if c.window != nil {
		if u, ok := c.window.usage(); ok {
			x.ticket.Usage(u.prompt, u.cached, u.completion)
		}
	}
	c.trailers()
	if c.idle > 0 {
		_ = x.rc.SetWriteDeadline(time.Time{}) // the next answer on this connection has its own
	}
	return answered
}

// trailers passes on what came after the body, announced or not.
func (c *copying) trailers() {
	if !c.x.r.ProtoAtLeast(1, 1) {
		return
	}
	h := c.x.w.Header()
	if c.rw != nil {
		dropFields(c.a.resp.Trailer, ofBytes) // they are filled in when the body has ended
	}
	for k, vv := range c.a.resp.Trailer {
		if !namedIn(h["Trailer"], k) {
			k = http.TrailerPrefix + k
		}
		h[k] = vv
	}
}

// cut ends a body that broke off. The client must see that it is not whole.
func (c *copying) cut(err error) verdict {
	x := c.x
	if x.r.Context().Err() != nil {
		return x.clientGone()
	}
	x.sum.Abort = AbortBackend
	x.p.log.Info("backend broke off", "id", x.id, "backend", c.a.backend.name, "bytes", c.sent, "error", err)
	if !x.r.ProtoAtLeast(1, 1) {
		reset(clientConn(x.r)) // the end of the connection alone would look like the end of the body
	}
	return broken
}

// reset makes the close of a connection a reset.
func reset(c net.Conn) {
	for c != nil {
		switch t := c.(type) {
		case interface{ SetLinger(int) error }:
			_ = t.SetLinger(0) // a connection that is closed already needs none
			return
		case interface{ NetConn() net.Conn }:
			c = t.NetConn()
		default:
			return
		}
	}
}
