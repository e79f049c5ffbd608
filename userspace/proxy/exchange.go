package proxy

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
)

// exchange is one request on its way through. It lives in the handler's
// goroutine; what a transport's goroutines touch is atomic.
type exchange struct {
	p      *Proxy
	w      http.ResponseWriter
	r      *http.Request
	rc     *http.ResponseController
	params *Params

	began  decide.Instant // head read
	ready  decide.Instant // request read: the choice can begin
	api    key.API
	prompt *key.Prompt
	path   string // escaped path to send; empty = as it came
	id     string // X-Request-Id, the client's or made here

	whole  bool                   // the client's body has been read to its end
	asked  atomic.Bool            // it has been begun to be read: who expects 100 Continue has got it
	body   atomic.Pointer[buffer] // nil: none, streamed, or not needed any more
	length int64                  // of the body to send; -1 = chunked
	stream *streamedBody          // not nil: the body is passed on as it comes

	pin      PinRequest
	readable bool    // the Pinner reads body and answer
	encoded  bool    // the client's body has a Content-Encoding
	plain    *buffer // the same decoded, for the Pinner; nil when it is not encoded or cannot be decoded
	edited   bool    // the body that is sent is not the client's
	pinned   int
	meant    string // name of the backend that is pinned; empty = any in that slot
	site     string // that is preferred; empty = none
	came     []int  // slots of gateways that the request came through

	ticket  decide.Ticket
	decided decide.Decision
	held    Hold           // how it ended that it was held; HoldNone: it was not
	waited  decide.Instant // how long it was held
	wrote   atomic.Int64   // instant at which the request was written; 0 = not yet

	sum    Summary
	served bool // serve has returned; if not, it panicked
}

// verdict is how a handler leaves its client.
type verdict uint8

const (
	answered verdict = iota // a whole answer has been written, or a refusal
	broken                  // the client must see that it is not whole
)

// ServeHTTP serves one request. It panics with http.ErrAbortHandler, as the
// server expects, when the client must not take what it got for a whole answer.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.active.Add(1)
	defer p.active.Add(-1)
	if page := p.page(r); page != nil && p.params.Load().allows(r.URL.EscapedPath()) {
		page.ServeHTTP(w, r)
		return
	}
	x := exchange{
		p: p, w: w, r: r,
		rc:     http.NewResponseController(w),
		params: p.params.Load(),
		began:  p.clock(),
		pinned: -1,
	}
	if x.id = r.Header.Get(requestIDHeader); x.id == "" {
		x.id = newRequestID()
	}
	x.prompt = p.prompts.Get().(*key.Prompt)
	defer x.finish()
	v := x.serve()
	x.served = true
	if v == broken {
		panic(http.ErrAbortHandler)
	}
}

// finish settles what is left, on every way out.
func (x *exchange) finish() {
	now := x.p.clock()
	if x.stream != nil {
		x.stream.src.end()
	}
	if !x.served {
		x.sum.Abort = AbortHandler
		if fault := recover(); fault != nil {
			x.p.log.Error("internal fault: the client was cut off", "id", x.id, "fault", fault, "stack", string(debug.Stack()))
			defer panic(http.ErrAbortHandler) // the server says no more about it
		}
	}
	x.ticket.Done(now)
	x.p.holding.wake()
	x.dropBody()
	x.dropPlain()
	x.p.prompts.Put(x.prompt)
	if wrote := decide.Instant(x.wrote.Load()); wrote > 0 {
		x.sum.Route = wrote - x.ready - x.waited
	}
	x.sum.Took = now - x.began
	x.p.recorder.Finished(x.sum)
}

// dropBody lets go of the body in memory. The first call counts.
func (x *exchange) dropBody() {
	if b := x.body.Swap(nil); b != nil {
		b.release()
	}
}

// dropPlain lets go of the decoded body.
func (x *exchange) dropPlain() {
	if x.plain != nil {
		x.plain.release()
		x.plain = nil
	}
}

func (x *exchange) serve() verdict {
	if why := x.admit(); why != RefusalNone {
		return x.refuse(why, "")
	}
	if why, err := x.read(); why != RefusalNone {
		return x.refuseBody(why, err)
	}
	x.ready = x.p.clock()
	if why := x.pinning(); why != RefusalNone {
		return x.refuse(why, "")
	}
	a, why := x.send()
	if a == nil {
		return x.failed(why)
	}
	defer a.close()
	if !x.unread() {
		return x.relay(a)
	}
	// The backend answers before it has the whole body. The server would read what
	// is left after the handler, and by whatever it finds take the client's bytes
	// for another request.
	x.w.Header().Set("Connection", "close")
	v := x.relay(a)
	a.close() // nothing more is sent there
	x.ticket.Done(x.p.clock())
	// Chunks end when the handler does: whoever reads them already is not kept waiting.
	if v == answered && a.resp.ContentLength >= 0 && x.unread() && x.rc.Flush() == nil {
		x.linger(RefusalNone)
	}
	return v
}

// admit checks what can be refused before the body is read.
func (x *exchange) admit() Refusal {
	switch {
	case x.r.ProtoMajor != 1: // what a client begins HTTP/2 with; the rest would be read as requests
		x.w.Header().Set("Connection", "close")
		return RefusalUpgrade
	case x.r.Method == http.MethodConnect:
		return RefusalUpgrade
	case namedIn(x.r.Header["Connection"], "Upgrade") && namedIn(x.r.Header["Upgrade"], "websocket"):
		return RefusalUpgrade // other protocols are an offer that may be ignored: h2c, TLS
	case !x.params.allows(x.r.URL.EscapedPath()):
		return RefusalPath
	}
	loop, sites := x.p.through(x.r.Header)
	if loop {
		return RefusalLoop
	}
	x.came = x.p.back(sites)
	if x.r.Method == http.MethodPost {
		x.api = key.ParsePath(x.r.URL.Path)
	}
	return RefusalNone
}

// read takes the body into memory where it says something about the way: on the
// four prompt APIs, where the Pinner reads it, and wherever it is JSON, which may
// name a model. Any other body is passed on as it comes.
func (x *exchange) read() (Refusal, error) {
	x.pin = PinRequest{Method: x.r.Method, Path: x.r.URL.EscapedPath(), API: x.api}
	x.readable = x.p.pinner.Readable(x.pin)
	if x.r.Body == nil || x.r.Body == http.NoBody || x.r.ContentLength == 0 {
		x.whole = true
		x.readPrompt(nil)
		return RefusalNone, nil
	}
	src := &timedBody{x: x, src: x.r.Body}
	if x.api == key.APIUnknown && !x.readable && !jsonBody(x.r.Header) {
		if x.r.ContentLength > x.params.MaxBodyBytes {
			return RefusalTooLarge, nil
		}
		x.stream = &streamedBody{src: src, left: x.params.MaxBodyBytes}
		x.length = x.r.ContentLength
		// The answer may begin while the body is still coming.
		_ = x.rc.EnableFullDuplex() // not supported only outside a server
		x.readPrompt(nil)
		return RefusalNone, nil
	}
	b, err := x.p.bodies.fill(src, x.r.ContentLength, x.params.MaxBodyBytes, x.params.BodyMemory)
	if err != nil {
		return bodyRefusal(err), err
	}
	src.done()
	x.whole = true
	x.body.Store(b)
	x.length = int64(b.n)
	if len(x.r.Trailer) > 0 {
		x.length = -1 // only a chunked body has trailers
	}
	if x.encoded = encoded(x.r.Header); x.encoded {
		x.readPrompt(nil)
		x.prompt.Reason = key.ReasonEncoding
		if x.readable {
			return x.decode(b)
		}
		return RefusalNone, nil
	}
	x.readPrompt(b.bytes())
	return RefusalNone, nil
}

// decode reads a compressed body that may name stored ids. The client's bytes
// are kept: they are sent as they came unless an id has to be replaced. What is
// not gzip, or is broken, stays unread.
func (x *exchange) decode(b *buffer) (Refusal, error) {
	if v := x.r.Header["Content-Encoding"]; len(v) != 1 || !strings.EqualFold(v[0], "gzip") && !strings.EqualFold(v[0], "x-gzip") {
		return RefusalNone, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(b.bytes()))
	if err != nil {
		return RefusalNone, nil
	}
	plain, err := x.p.bodies.fill(z, -1, x.params.MaxBodyBytes, x.params.BodyMemory)
	switch {
	case errors.Is(err, errTooLarge), errors.Is(err, errMemory):
		return bodyRefusal(err), err
	case err == nil:
		x.plain = plain
		x.readPrompt(plain.bytes())
	}
	return RefusalNone, nil
}

// readPrompt fills x.prompt from a body, or empties it.
func (x *exchange) readPrompt(body []byte) {
	if body == nil && x.api == key.APIUnknown {
		*x.prompt = key.Prompt{Keys: x.prompt.Keys[:0], Reason: key.ReasonPath}
		if model, ok := strings.CutPrefix(x.r.URL.Path, "/v1/models/"); ok && x.length == 0 {
			x.prompt.Model = model // its description is to be had where it is served
		}
		return
	}
	x.p.hasher.Load().Read(x.api, body, x.prompt)
}

// bodyRefusal names what went wrong while a body was read.
func bodyRefusal(err error) Refusal {
	switch {
	case errors.Is(err, errTooLarge):
		return RefusalTooLarge
	case errors.Is(err, errMemory):
		return RefusalMemory
	case errors.Is(err, os.ErrDeadlineExceeded):
		return RefusalSlowBody
	}
	return RefusalBadBody
}

// jsonBody tells whether a body may be JSON: it says so, or says nothing.
func jsonBody(h http.Header) bool {
	t := h.Get("Content-Type")
	if t == "" || t == "application/json" {
		return true
	}
	media, _, err := mime.ParseMediaType(t)
	if err != nil {
		return false
	}
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// encoded tells whether a body is compressed or otherwise encoded.
func encoded(h http.Header) bool {
	for _, v := range h["Content-Encoding"] {
		if v != "" && !strings.EqualFold(v, "identity") {
			return true
		}
	}
	return false
}

// pinning asks the Pinner, and carries out what it says.
func (x *exchange) pinning() Refusal {
	if !x.readable {
		return RefusalNone
	}
	b := x.body.Load()
	read := b
	if x.encoded {
		read = x.plain
	}
	x.pin.Prompt, x.pin.Unread = x.prompt, b != nil && read == nil
	if read != nil {
		x.pin.Body = read.bytes()
	}
	a := x.p.pinner.Request(x.pin)
	defer x.dropPlain()
	defer func() { x.pin.Prompt, x.pin.Body = nil, nil }() // the buffers may go back to their pool
	if a.Refuse != RefusalNone {
		return a.Refuse
	}
	x.pinned, x.meant, x.path, x.site = a.Slot, a.Backend, a.Path, a.Site
	if len(a.Edits) > 0 && read != nil {
		edited, err := x.p.bodies.edited(read, a.Edits, x.params.BodyMemory)
		if err != nil {
			return bodyRefusal(err)
		}
		x.body.Store(edited)
		x.edited = true
		b.release()
		if x.length >= 0 {
			x.length = int64(edited.n)
		}
	}
	return RefusalNone
}

// failed answers a request that got no answer.
func (x *exchange) failed(why failure) verdict {
	if why.abort != AbortNone {
		x.sum.Abort = why.abort
		return broken
	}
	if why.err != nil {
		x.p.log.Debug("request failed", "id", x.id, "backend", x.sum.Backend, "reason", why.refusal.String(), "error", why.err)
	}
	return x.refuse(why.refusal, why.detail)
}

// refuseBody answers a request whose body could not be read.
func (x *exchange) refuseBody(why Refusal, err error) verdict {
	if why == RefusalBadBody && x.r.Context().Err() != nil {
		x.sum.Abort = AbortClient // it may have closed its half only: answer all the same
	}
	if err != nil {
		x.p.log.Debug("request body", "reason", why.String(), "error", err)
	}
	return x.refuse(why, "")
}

const (
	// lingerBytes and lingerTime bound how much of a refused body is read and
	// thrown away, so that the client gets to read the answer instead of a reset.
	lingerBytes = 256 << 20
	lingerTime  = 5 * time.Second
	lingerShort = 100 * time.Millisecond
)

// unread tells whether the client's body was not read to its end.
func (x *exchange) unread() bool {
	if x.whole || x.r.Body == nil || x.r.Body == http.NoBody || x.r.ContentLength == 0 {
		return false
	}
	return x.stream == nil || !x.stream.ended.Load()
}

// refuse answers with an error of the agent's own.
func (x *exchange) refuse(why Refusal, detail string) verdict {
	x.sum.Refusal, x.sum.Code = why, why.Status()
	unread := x.unread()
	if unread {
		_ = x.rc.EnableFullDuplex() // or the server would read some of it before it answers
		x.w.Header().Set("Connection", "close")
	}
	x.w.Header().Set(requestIDHeader, x.id)
	writeRefusal(x.w, x.r, x.api, why, detail)
	if unread && x.rc.Flush() == nil {
		x.linger(why)
	}
	return answered
}

// linger reads on for a while. A client that waits for 100 Continue, or sends
// nothing anyway, is only given a moment to close.
func (x *exchange) linger(why Refusal) {
	if why == RefusalSlowBody || x.r.Header.Get("Expect") != "" && !x.asked.Load() {
		_ = x.rc.SetReadDeadline(time.Now().Add(lingerShort)) // for the server, which reads as well
		return
	}
	_ = x.rc.SetReadDeadline(time.Now().Add(lingerTime))
	// The reader of this limit tells the server to close its half first.
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(x.w, x.r.Body, lingerBytes))
}
