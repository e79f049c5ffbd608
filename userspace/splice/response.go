package splice

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
)

// ResponseInfo is what the proxy knows of a response.
type ResponseInfo struct {
	Backend        uint32 // the id that was given to DialBackend
	ClientHTTP11   bool   // the client speaks HTTP/1.1
	ClientTLS      bool
	BackendChunked bool
	ClientChunked  bool
	Rewritten      bool // bytes of the body may have to change
	// Deltas: of a body that is Rewritten no byte of an event whose name ends in
	// ".delta" changes, and Flushed is only called between two events. Then the
	// kernel may take messages that are one such event.
	Deltas bool
	// Usage may be given where the event that tells the usage is wanted, of a body
	// that is not Rewritten. Of messages that may hold it and that the kernel
	// delivers Usage is told the end, 1000 bytes at most, as it was sent, with its
	// chunk framing: by any goroutine, in order, before a Read of the backend's
	// connection returns later bytes, and not after End or Abort has returned. It may
	// be told a piece that is no end of the usage's event, or that the agent reads
	// as well. It must neither keep the bytes nor call the Splicer.
	Usage func(end []byte)
	// FirstToken may be given where the first token of a body that is not
	// Rewritten is its first event, pings aside. Then the kernel may take that
	// too, and FirstToken is told how long ago it did: once at most, by any
	// goroutine, before a Read of the backend's connection returns later bytes,
	// and not after End or Abort has returned. It must not call the Splicer.
	FirstToken func(ago time.Duration)
}

// Response is one response on its way. Its methods are called by the goroutine of
// the copy loop; exactly one of End and Abort ends it, more calls do nothing.
type Response struct {
	s *Splicer
	c *clientConn
	b *backendConn

	why      Reason // Spliced: may be armed
	ended    bool
	armed    bool   // at least once
	at       uint32 // position of the last arm
	exchange uint64 // of the backend's connection
	mode     bpf.ArmMode
	told     word   // first is nil where the agent must see the first token
	number   uint64 // of the response, once it is among the waiting; 0: it never was
	skip     int    // flushes to let pass before the next arm
	barren   int    // arms in a row that gained nothing
	first    bpf.Flow

	// Guarded by b.mu. Of the flow when bytes came behind the last arm; first
	// before that.
	last    bpf.Flow
	settled bool // last is later than the last arm
	took    bool // the last arm was taken
	gained  bool // and chunks were redirected
}

// Begin begins a response: its head was read from the backend. It never returns
// nil; where the response cannot be spliced the result only counts why.
func (s *Splicer) Begin(client, backend net.Conn, info ResponseInfo) *Response {
	r := &Response{s: s}
	r.why = r.admit(client, backend, info)
	return r
}

func (r *Response) admit(client, backend net.Conn, info ResponseInfo) Reason {
	if r.s.set == nil {
		return Off
	}
	switch {
	case info.ClientTLS:
		return ClientTLS
	case !info.ClientHTTP11:
		return ClientProtocol
	case info.Rewritten && !info.Deltas:
		return Rewritten
	case !info.BackendChunked:
		return BackendFraming
	case !info.ClientChunked:
		return ClientFraming
	}
	if info.Rewritten {
		r.mode = bpf.ArmDeltas
	} else {
		r.told = word{first: info.FirstToken, usage: info.Usage}
	}
	var ok bool
	if r.c, ok = client.(*clientConn); !ok {
		return ClientProtocol
	}
	if r.b, ok = backend.(*backendConn); !ok {
		return Unclaimed
	}
	if r.exchange, r.first, ok = r.b.enter(); !ok {
		return Unclaimed
	}
	r.last = r.first
	return Spliced
}

// Flushed says that the first body bytes of the decoded body, all that the copy
// loop has read, have reached the client: written as they were or as what they were
// rewritten to, nothing held back, and flushed. Call it after the first token
// and then before each read that may block; it may arm the kernel. Where there is a
// ResponseInfo.FirstToken call it with 0 as well, when the head has been flushed
// alone.
func (r *Response) Flushed(body int64) {
	if r.why != Spliced || r.ended || body == 0 && r.told.first == nil {
		return
	}
	if r.skip > 0 {
		r.skip--
		return
	}
	r.b.mu.Lock()
	read := r.b.read
	ready := r.b.frame.boundary() && r.b.frame.body == body
	lost := r.b.frame.lost()
	r.b.mu.Unlock()
	if lost && !r.armed {
		r.why = Untracked
		return
	}
	if !ready || r.armed && r.at == read {
		return
	}
	if r.armed && !r.fruitful() {
		return
	}
	if why := r.c.join(r.s); why != Spliced {
		r.fail(why)
		return
	}
	idle, err := r.c.idle(r.s.p.Unread)
	if err != nil {
		r.fail(ClientGone)
		return
	}
	if idle && body == 0 {
		r.arm(read, bpf.ArmFirst)
	} else if idle {
		r.arm(read, r.mode)
	}
}

// Redirected returns the bytes that the kernel has carried of this response so
// far: how a copy loop that waits can tell a silent server from a spliced one. Any
// goroutine may call it.
func (r *Response) Redirected() int64 {
	if r.b == nil {
		return 0
	}
	f, ok, err := r.s.set.Flow(r.b.key)
	if err != nil || !ok {
		return 0
	}
	return int64(f.Redirected - r.first.Redirected)
}

// fail ends the arming of this response. A response that was armed before stays
// what it is: its splice is over, and its end is checked as ever.
func (r *Response) fail(why Reason) {
	if r.armed {
		r.skip = 1 << 30
		return
	}
	r.why = why
}

// fruitful looks at what became of the last arm. One that came too late, because
// bytes were under way already, is tried again: that costs less than one copied
// chunk. A server that takes arms and sends no whole chunks is asked less and less
// often.
func (r *Response) fruitful() bool {
	r.b.mu.Lock()
	settled, took, gained := r.settled, r.took, r.gained
	r.b.mu.Unlock()
	if !settled {
		r.fail(Unclaimed) // the flow is gone
		return false
	}
	if gained || !took {
		r.barren = 0
		return true
	}
	const most = 8
	patience := 2
	if r.mode == bpf.ArmDeltas {
		patience = 6 // so many other events lie between the deltas of two items
	}
	r.barren++
	if r.barren <= patience {
		return true
	}
	r.skip = 1<<min(r.barren-patience, most) - 1
	return false
}

func (r *Response) arm(read uint32, mode bpf.ArmMode) {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.b.closed { // nobody would withdraw the arm
		r.fail(Unclaimed)
		return
	}
	r.b.armed = r
	r.settled = false
	var usage uint32
	if r.told.usage != nil {
		usage = 1
	}
	if r.number == 0 && (usage != 0 || mode == bpf.ArmFirst) {
		r.number = r.s.waiting.enter(r.told)
	}
	err := r.s.set.Arm(r.b.key, bpf.Arm{
		ServerCookie: r.first.ServerCookie, ClientCookie: r.c.cookie, Response: r.number,
		Position: read, Credit: r.s.p.Credit, Mode: mode, Usage: usage,
	})
	if err != nil {
		r.b.armed, r.settled = nil, true
		r.fail(TableFull)
		return
	}
	r.armed, r.at = true, read
}

// settle takes the flow as it is when bytes have come behind the last arm: until the
// next one nothing of it changes. An arm that was not taken is withdrawn. b.mu is
// held.
func (r *Response) settle(f bpf.Flow) {
	r.took, r.gained = f.Arms != r.last.Arms, f.Chunks != r.last.Chunks
	r.last = f
	r.settled = r.took || r.s.set.Disarm(r.b.key) == nil
}

// End says that the body was read to its end. It compares what the client's socket
// was given with what it should have been given. nil: finish the response as usual
// (where the client has left meanwhile that fails as ever). ErrDamaged: stop, write
// no terminator. By now the backend's connection may serve another request: it is
// not the caller's to close.
func (r *Response) End() error {
	if r.ended {
		return nil
	}
	r.end()
	if !r.armed {
		if r.why == Spliced {
			r.why = NeverArmed
		}
		r.count(Ended)
		return nil
	}
	r.b.mu.Lock()
	ok, redirected := r.settled, r.last.Redirected-r.first.Redirected
	judged := r.last.Arms != r.first.Arms
	r.b.mu.Unlock()
	if redirected == 0 {
		r.why = NeverRedirected
		if judged && r.mode == bpf.ArmDeltas {
			r.why = Rewritten
		}
	}
	r.c.redirected += redirected
	if ok {
		var gone bool
		if ok, gone = r.c.intact(); gone {
			// The kernel counts what it could not deliver any more.
			r.why = Spliced
			r.count(Aborted)
			return nil
		}
	}
	if !ok {
		r.why = Spliced
		r.cut()
		r.count(Damaged)
		return ErrDamaged
	}
	r.count(Ended)
	return nil
}

// Abort says that the response ends in any other way: a side is gone, or damaged.
// The backend's connection of a response that was armed is closed, so that the
// engine stops, and its client is cut unless the backend had ended on its own: a
// chunk may still be on its way there.
func (r *Response) Abort() {
	if r.ended {
		return
	}
	r.end()
	if r.armed {
		r.b.mu.Lock()
		over := r.b.over && r.b.exchange == r.exchange
		r.b.mu.Unlock()
		if over {
			r.b.closeIf(r.exchange)
		} else {
			r.cut()
		}
	} else if r.why == Spliced {
		r.why = NeverArmed
	}
	r.count(Aborted)
}

// end ends the wait for word from the kernel; what has come is told.
func (r *Response) end() {
	r.ended = true
	if r.number != 0 {
		r.s.CatchUp()
		r.s.waiting.leave(r.number)
	}
}

func (r *Response) cut() {
	r.b.closeIf(r.exchange)
	r.c.cut()
}

func (r *Response) count(res Result) {
	r.s.counts[res][r.why].Add(1)
}

// joinReason names the error of adding a client's socket.
func joinReason(err error) Reason {
	switch {
	case err == nil:
		return Spliced
	case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ENOMEM):
		return TableFull
	case errors.Is(err, maps.ErrBusy):
		return ClientBusy
	}
	return ClientGone
}
