package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
)

// Hold says how it ended that a request was held: kept here, unsent, since no backend
// had KV memory for it.
type Hold uint8

// The ends.
const (
	HoldNone      Hold = iota
	HoldRoom           // a backend had room, or only one was left
	HoldLimit          // it had waited for Params.Hold: sent whatever room there was
	HoldNoBackend      // nobody was left to take it: refused
	HoldClient         // the client went away
	HoldDrain          // the agent shuts down: sent whatever room there was, or refused where the drain's time is over
	HoldOff            // a reload switched holding off: likewise
	HoldFull           // sent at once, since Params.HoldMost were held already
	HoldMemory         // sent at once, since bodies took more than half of their memory
	holdCount
)

var holdNames = [holdCount]string{"none", "room", "limit", "no_backend", "client", "drain", "off", "full", "memory"}

// String returns the label value.
func (h Hold) String() string { return name(holdNames[:], int(h)) }

// Waited tells whether the request waited before that; if not, it was not held at all.
func (h Hold) Waited() bool { return h != HoldNone && h != HoldFull && h != HoldMemory }

// Holds returns every Hold.
func Holds() []Hold { return count[Hold](holdCount) }

// MayHold tells whether a request may be held whose prompt was read with this result:
// one whose body tells what it needs. What an engine will refuse is to be refused at
// once. An encoded body tells neither its length nor its model; where the rest of a
// prompt is stored in an engine, its length is not known either. What has no keys for
// other reasons needs memory for all its tokens like any other prompt.
func MayHold(why key.Reason) bool {
	switch why {
	case key.ReasonPath, key.ReasonEncoding, key.ReasonInvalid, key.ReasonNoPrompt, key.ReasonContinued:
		return false
	}
	return true
}

// mayHold tells whether the first choice for the request may be that it is held. Who
// is pinned has no choice. A body that is passed on as it comes is no prompt, and MayHold
// says so.
func (x *exchange) mayHold() bool {
	return x.params.Hold > 0 && x.pinned < 0 && MayHold(x.prompt.Reason)
}

// holdTick is how often those that are held are looked at if nothing happens: for what
// nobody tells, as the end of an ejection or of what a poll is good for.
const holdTick = 100 * time.Millisecond

type waiter = decide.Waiter[chan grant]

// grant ends a wait: where the request goes, and why now. Its ticket is the taker's to
// end.
type grant struct {
	ticket  decide.Ticket
	decided decide.Decision
	how     Hold
}

// holding keeps the requests for which no backend has room. Each waits in its handler;
// one goroutine, which runs while anybody waits, routes for them in the line's order.
type holding struct {
	p     *Proxy
	held  atomic.Int64  // how many there are
	wakes chan struct{} // capacity 1: look again
	runs  sync.WaitGroup

	mu      sync.Mutex // taken before the Router's locks
	line    decide.Line[chan grant]
	running bool // the goroutine
	closed  bool // who is held is sent
}

// hold keeps a request to which the Router answered d, no room, until it may go. If it
// does not go it has failed.
func (x *exchange) hold(req decide.Request, d decide.Decision) (g grant, why failure, goes bool) {
	h := &x.p.holding
	w, not := h.enter(req, d)
	if w == nil {
		x.p.recorder.Held(not, 0)
		req.MayWait = false
		g.ticket, g.decided = x.p.router.Route(req, x.p.clock())
		return g, failure{}, true
	}
	select {
	case g = <-w.For:
		goes = true
	case <-x.r.Context().Done():
		g = h.leave(w)
		if g.how = HoldClient; errors.Is(context.Cause(x.r.Context()), errDrain) {
			g.how = HoldDrain
		}
	}
	x.held, x.waited = g.how, x.p.clock()-w.Came
	x.p.recorder.Held(g.how, x.waited)
	if goes {
		return g, failure{}, true
	}
	x.ticket, x.decided = g.ticket, g.decided // for finish to give back
	if g.how == HoldDrain {
		return grant{}, failure{refusal: RefusalDrain}, false
	}
	return grant{}, failure{abort: AbortClient}, false
}

// enter puts a request into the line, or says why not.
func (h *holding) enter(req decide.Request, d decide.Decision) (*waiter, Hold) {
	params := h.p.params.Load()
	if h.p.bodies.used.Load() > params.BodyMemory/2 {
		return nil, HoldMemory
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.line.Len() >= params.HoldMost {
		return nil, HoldFull
	}
	w := &waiter{For: make(chan grant, 1), Request: req, Came: h.p.clock()}
	h.line.Add(w, d)
	h.held.Store(int64(h.line.Len()))
	if !h.running {
		h.running = true
		h.runs.Go(h.run)
	}
	h.wake() // of what happened since the Router answered nobody here was told
	return w, HoldNone
}

// leave takes a request out that is over. What it was handed over meanwhile, if
// anything, is in the grant.
func (h *holding) leave(w *waiter) grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.line.Remove(w) {
		return <-w.For
	}
	h.wake() // while there is somebody: whoever looks ends when there is not
	h.held.Store(int64(h.line.Len()))
	return grant{}
}

// wake has the line looked at, when an answer has ended or the backends or settings have
// changed. A first token makes no room: the memory that the prompt had claimed it has
// then. It never blocks, and costs nothing while nobody is held.
func (h *holding) wake() {
	if h.held.Load() == 0 {
		return
	}
	select {
	case h.wakes <- struct{}{}:
	default: // it will be
	}
}

// close sends all that are held, and from then on whoever would be.
func (h *holding) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.wake()
}

// run looks at the line until it is empty.
func (h *holding) run() {
	timer := time.NewTimer(holdTick)
	defer timer.Stop()
	for {
		select {
		case <-h.wakes:
		case <-timer.C:
		}
		next, ok := h.look()
		if !ok {
			return
		}
		timer.Reset(next)
	}
}

// look routes for those that may go, and returns when to look again at the latest;
// false when nobody is held.
func (h *holding) look() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, over := h.p.clock(), HoldLimit
	switch h.line.Limit = h.p.params.Load().Hold; {
	case h.closed:
		h.line.Limit, over = 0, HoldDrain
	case h.line.Limit <= 0:
		over = HoldOff
	}
	for _, w := range h.line.Ready(h.p.router, now) {
		req := w.Request
		req.MayWait = !w.Due()
		g := grant{how: HoldRoom}
		if g.ticket, g.decided = h.p.router.Route(req, now); g.decided.Reason == decide.ReasonNoRoom {
			h.line.Add(w, g.decided)
			continue
		}
		switch {
		case w.Due():
			g.how = over
		case g.decided.Slot < 0:
			g.how = HoldNoBackend
		}
		h.held.Add(-1) // before anybody can have the answer
		w.For <- g
	}
	if h.line.Len() == 0 {
		h.running = false
		return 0, false
	}
	return max(min(h.line.Until(now), holdTick), 0), true
}

// Held returns the number of requests that are held.
func (p *Proxy) Held() int { return int(p.holding.held.Load()) }

// Wake says that the Router may answer otherwise than it did: a backend was polled, or
// admits again. It does not block. What the Proxy itself does it knows.
func (p *Proxy) Wake() { p.holding.wake() }
