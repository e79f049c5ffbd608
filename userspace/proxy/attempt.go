package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tautline/tautline/userspace/upstream"
)

// Causes with which an attempt's context is cancelled.
var (
	errHeadTimeout = errors.New("no response head in time")
	errIdle        = errors.New("response stood still for too long")
)

// attempt is one try to have a backend answer.
type attempt struct {
	x       *exchange
	backend *backend
	ctx     context.Context
	cancel  context.CancelCauseFunc
	resp    *http.Response
	code    int         // what the answer says of the backend: its status, or one that stands inside the stream
	timer   *time.Timer // head timeout, then idle timeout; nil when there is neither
	watch   sync.Mutex  // held while the timer's function runs
	ended   bool        // guarded by watch

	keep    bool         // the body: another backend can be asked if this one refuses
	conn    net.Conn     // what Splicer.Begin is to see
	sought  bool         // a connection has been looked for
	counted *backendConn // nil: there was no connection
	reused  bool
	before  int64 // bytes written to the connection before this request

	headDone atomic.Bool
	moving   atomic.Pointer[movement] // nil: nothing moves but what the copy loop reads

	mu      sync.Mutex // guards the client's header against a late 1xx, the body against a late WroteRequest
	settled bool       // RoundTrip has returned
}

// attempt makes one round trip.
func (x *exchange) attempt(b *backend, header http.Header, keep bool) (*attempt, failure) {
	a := &attempt{x: x, backend: b, keep: keep}
	a.ctx, a.cancel = context.WithCancelCause(x.r.Context())
	if t := &x.params.Timeouts; t.ResponseHead > 0 || t.Idle > 0 {
		a.timer = time.AfterFunc(maxWait, a.expired)
	}
	resp, err := b.transport.RoundTrip(a.request(header))
	a.mu.Lock()
	a.settled = true
	a.mu.Unlock()
	a.headDone.Store(true)
	// What is left of the head's time is not the body's. Where nothing was left, the
	// timer's function may still be on its way, and would take the body for idle.
	if a.timer != nil && !a.timer.Stop() && err == nil {
		_ = resp.Body.Close()
		a.cancel(errHeadTimeout)
		err = errHeadTimeout
	}
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		err = errors.New("the backend switched protocols without being asked")
	}
	if err != nil {
		why := a.classify(err)
		a.cancel(err)
		a.stopTimer()
		return nil, why
	}
	a.resp, a.code = resp, resp.StatusCode
	if code := a.inside(); code != 0 {
		a.code = code
	}
	return a, failure{}
}

// maxWait is a timer's time while it has nothing to watch.
const maxWait = 1 << 62

// movement watches what the kernel moves past the copy loop.
type movement struct {
	by   Redirecting
	seen int64 // when the timer ran out last; only the timer's goroutine uses it
}

// expired is what the timer does. It holds watch, so that nothing of an attempt
// that has ended is touched.
func (a *attempt) expired() {
	a.watch.Lock()
	defer a.watch.Unlock()
	if a.ended {
		return
	}
	if !a.headDone.Load() {
		a.cancel(errHeadTimeout)
		return
	}
	if m := a.moving.Load(); m != nil {
		if n := m.by.Redirected(); n != m.seen {
			m.seen = n
			a.timer.Reset(a.x.params.Timeouts.Idle)
			return
		}
	}
	a.cancel(errIdle)
}

// stopTimer stops the timer for now; the copy loop may set it again.
func (a *attempt) stopTimer() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// close ends the attempt. A connection whose answer was not read to its end is closed.
func (a *attempt) close() {
	a.stopTimer()
	a.watch.Lock() // the timer's function is over, or will do nothing
	a.ended = true
	a.watch.Unlock()
	a.cancel(nil)
	_ = a.resp.Body.Close()
}

// What is read of an answer that nobody will see.
const (
	discardBytes = 16 << 10
	discardTime  = 50 * time.Millisecond
)

// discard ends an attempt whose answer is not passed on. A short one is read to its
// end, so that an overloaded engine is not asked for new connections as well.
func (a *attempt) discard() {
	late := time.AfterFunc(discardTime, func() { a.cancel(nil) })
	_, _ = io.CopyN(io.Discard, a.resp.Body, discardBytes)
	late.Stop()
	a.close()
}

// request builds what is sent.
func (a *attempt) request(header http.Header) *http.Request {
	x := a.x
	u := a.backend.target(x.r.URL)
	if x.path != "" {
		sent := &url.URL{RawPath: x.path, RawQuery: x.r.URL.RawQuery, ForceQuery: x.r.URL.ForceQuery}
		if plain, err := url.PathUnescape(x.path); err == nil {
			sent.Path = plain
		} else {
			sent.Path = x.path
		}
		u = a.backend.target(sent)
	}
	out := &http.Request{
		Method:        x.r.Method,
		URL:           u,
		Host:          a.backend.base.Host,
		Header:        header,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		ContentLength: x.length,
	}
	if x.length < 0 {
		out.TransferEncoding = []string{"chunked"}
		out.Trailer = x.r.Trailer // filled in, at the latest when the body has been read
		if x.edited {
			dropFields(out.Trailer, ofBytes)
		}
	}
	switch body := x.body.Load(); {
	case x.stream != nil:
		out.Body = x.stream
	case x.length == 0 || body == nil:
		out.Body = http.NoBody // a POST then says Content-Length: 0
	default:
		out.Body = body.reader()
	}
	return out.WithContext(httptrace.WithClientTrace(a.ctx, &httptrace.ClientTrace{
		GetConn:        a.getConn,
		GotConn:        a.gotConn,
		WroteRequest:   a.wroteRequest,
		Got1xxResponse: a.informational,
	}))
}

// getConn begins a turn of the transport. Another one means that a kept connection
// broke under a request that may be sent twice: what was noted of that connection
// says nothing about what comes now, which may be that nobody can be connected to.
func (a *attempt) getConn(string) {
	if a.sought {
		a.x.retried(RetryStale)
	}
	a.sought = true
	a.counted, a.conn, a.reused = nil, nil, false
	if a.timer != nil && !a.timer.Reset(maxWait) { // connecting has its own time
		a.cancel(errHeadTimeout) // it had run out, and its function may still be on its way
	}
}

func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	a.counted, a.conn = inner(info.Conn)
	a.reused = info.Reused
	if a.counted != nil {
		a.before = a.counted.written.Load()
		// A body in memory follows the head at once, but not through TLS.
		a.counted.join = info.Conn == net.Conn(a.counted) && a.x.length > 0 && a.x.stream == nil
	}
}

// wroteRequest may run in a goroutine of the transport. From here on the request
// will not be sent again, so its body is not needed any more, unless the backend
// may refuse it: then it is kept until the head comes, as long as bodies take no
// more than half of their memory.
func (a *attempt) wroteRequest(info httptrace.WroteRequestInfo) {
	if info.Err != nil {
		return
	}
	a.x.wrote.CompareAndSwap(0, int64(a.x.p.clock()))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return // the answer was faster: the body is for send to drop, or to send elsewhere
	}
	if !a.keep || a.x.p.bodies.used.Load() > a.x.params.BodyMemory/2 {
		a.x.dropBody()
	}
	if t := a.x.params.Timeouts.ResponseHead; t > 0 {
		a.timer.Reset(t)
	}
}

// informational passes a 1xx response on, 100 Continue aside: that one was
// answered when the body was read.
func (a *attempt) informational(code int, header textproto.MIMEHeader) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled || code == http.StatusContinue || !a.x.r.ProtoAtLeast(1, 1) {
		return nil
	}
	h := a.x.w.Header()
	copyHeader(h, http.Header(header))
	a.x.w.WriteHeader(code)
	clear(h)
	return nil
}

// classify finds out what a failed round trip means, and tells the Router.
func (a *attempt) classify(err error) failure {
	x := a.x
	if cause := context.Cause(x.r.Context()); cause != nil {
		switch {
		case errors.Is(cause, errDrain):
			return failure{refusal: RefusalDrain}
		case x.stream != nil && x.stream.src.late():
			return failure{refusal: RefusalSlowBody}
		}
		return failure{abort: AbortClient}
	}
	if x.stream != nil {
		if read := x.stream.failed.Load(); read != nil {
			return failure{refusal: bodyRefusal(*read), err: *read}
		}
	}
	now := x.p.clock()
	here := x.p.backend(a.backend.slot) == a.backend // or the slot may be another's by now
	switch {
	case errors.Is(context.Cause(a.ctx), errHeadTimeout):
		if here {
			x.p.router.Status(a.backend.slot, http.StatusGatewayTimeout, now)
		}
		return failure{refusal: RefusalHeadTimeout, err: err}
	case errors.Is(err, upstream.ErrRequest):
		return failure{refusal: RefusalBadBody, err: err}
	case a.counted == nil:
		if here {
			x.p.router.ConnectFailed(a.backend.slot, now)
		}
		return failure{refusal: RefusalConnect, err: err, retry: x.again(RetryConnect)}
	case a.reused && a.counted.written.Load() == a.before:
		return failure{refusal: RefusalConnect, err: err, retry: x.again(RetryStale)}
	}
	if a.counted.written.Load() == a.before {
		if here {
			x.p.router.ConnectFailed(a.backend.slot, now)
		}
		return failure{refusal: RefusalConnect, err: err, retry: x.again(RetryConnect)}
	}
	if here {
		// Not a failed connect, which ejects at once: it may be this request's doing.
		x.p.router.Status(a.backend.slot, http.StatusBadGateway, now)
	}
	return failure{refusal: RefusalProtocol, err: err}
}
