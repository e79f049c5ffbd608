package proxy

import (
	"net/http"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
)

// failure says why there is no answer from a backend. Exactly one of refusal and
// abort is set.
type failure struct {
	refusal Refusal
	abort   Abort
	detail  string
	err     error
	retry   Retry // not RetryNone: the request may be sent again
}

// send chooses a backend and sends the request; once more if nothing reached the
// first one, and up to Retry503 times more to others if it was refused with 503. On
// success the attempt's response is the caller's to relay.
func (x *exchange) send() (*attempt, failure) {
	a, why := x.choose()
	switch why.refusal {
	case RefusalConnect, RefusalNoBackend:
		// One model server that is not there, and has never said what it serves, is all
		// that is known of this model: it may come.
		if x.pinned < 0 && x.p.router.Unlearned(x.prompt.Model) {
			why.refusal, why.detail = RefusalModelUnlearned, x.modelDetail()
		}
	}
	return a, why
}

// choose is send before its failures have been given their names.
func (x *exchange) choose() (*attempt, failure) {
	header := requestHeader(x.r, x.id)
	x.p.addVia(header, x.r)
	if x.readable {
		dropFields(header, unreadable)
	}
	if x.edited {
		dropFields(header, ofBytes)
		delete(header, "Content-Encoding") // it was edited, and is sent, decoded
	}
	req := decide.Request{
		Model:  x.prompt.Model,
		Keys:   x.prompt.Keys,
		Bytes:  x.promptBytes(),
		Stream: x.prompt.Stream,
		Reason: x.prompt.Reason,
		Site:   x.site,
		Pinned: x.pinned,
	}
	if x.pinned < 0 {
		req.Tried = x.came
	}
	req.MayWait = x.mayHold()
	defer x.dropBody()
	var last failure     // of a choice that nothing reached; zero before there was one
	var refused *attempt // what the last choice answered instead of taking the request
	for left := x.params.Retry503; ; {
		ticket, decided := x.p.router.Route(req, x.p.clock())
		if decided.Reason == decide.ReasonNoRoom {
			g, why, goes := x.hold(req, decided)
			if !goes {
				return nil, why
			}
			ticket, decided = g.ticket, g.decided
		}
		x.p.recorder.Decided(decided)
		switch {
		case decided.Slot >= 0 && refused != nil:
			refused.discard()
			refused = nil
			x.retried(RetryRefused)
		case decided.Slot >= 0:
		case refused != nil: // nobody else is left to try
			return refused, failure{}
		case last.retry != RetryNone:
			return nil, last
		default:
			x.ticket, x.decided = ticket, decided
			return nil, x.noBackend()
		}
		x.ticket, x.decided = ticket, decided
		a, why := x.try(header, left > 0)
		switch {
		case a != nil:
			x.judge(a)
			if !x.refusedBy(a) {
				return a, failure{}
			}
			left--
			refused = a
		case why.retry == RetryNone || last.retry != RetryNone:
			x.ticket.Withdraw(x.p.clock())
			return nil, why
		default:
			x.ticket.Withdraw(x.p.clock())
			x.retried(why.retry)
			last = why
		}
		req.MayWait = false // who has waited here, or was sent before, is not held again
		req.Tried = append(req.Tried, x.decided.Slot)
		req.Moves = x.ticket // the reservation goes along, in one step
	}
}

func (x *exchange) retried(why Retry) {
	x.sum.Retry = why
	x.p.recorder.Retried(why)
}

// refusedBy tells whether an answer means that another backend may be asked: 503 is
// what engines whose queue is full say before they begin (vLLM's
// --max-num-queued-reqs and -tokens, SGLang's --max-queued-requests), 508 what a
// gateway says that would send the request back here. 429 is the client's own
// limit, other 5xx may come in the middle of the work. SGLang's 503 may stand inside
// a stream.
func (x *exchange) refusedBy(a *attempt) bool {
	return a.keep && (a.code == http.StatusServiceUnavailable || a.code == http.StatusLoopDetected) &&
		(x.length == 0 || x.body.Load() != nil) && x.r.Context().Err() == nil
}

// promptBytes estimates the prompt where its bytes could not be told: the body is
// an upper bound.
func (x *exchange) promptBytes() int {
	if x.prompt.Bytes == 0 && x.api != key.APIUnknown {
		if b := x.body.Load(); b != nil {
			return b.n
		}
	}
	return x.prompt.Bytes
}

// noBackend turns a decision for nobody into a refusal.
func (x *exchange) noBackend() failure {
	switch x.decided.Reason {
	case decide.ReasonPinGone:
		return failure{refusal: RefusalPinUnknown}
	case decide.ReasonPinRefused:
		return failure{refusal: RefusalPinUnavailable}
	case decide.ReasonUnknownModel:
		if !x.p.anyBackend() {
			break // there will be one: not the client's mistake
		}
		return failure{refusal: RefusalNoModel, detail: x.modelDetail()}
	}
	return failure{refusal: RefusalNoBackend}
}

// modelDetail names the model that was asked for.
func (x *exchange) modelDetail() string {
	if m := x.prompt.Model; len(m) <= maxModelEcho {
		return "Model: " + m
	}
	return ""
}

// maxModelEcho is the longest model name that an error repeats.
const maxModelEcho = 256

// try sends the request to the decided backend. A kept connection that turns out
// to be closed is no fault of the backend: one new connection to it is tried
// first, with the same reservation. again allows for another backend if this one
// refuses; only a prompt can be offered elsewhere, a stored object cannot.
func (x *exchange) try(header http.Header, again bool) (*attempt, failure) {
	b := x.p.backend(x.decided.Slot)
	if b == nil {
		return nil, failure{refusal: RefusalConnect, retry: RetryRemoved}
	}
	if x.pinned >= 0 && x.meant != "" && x.meant != b.name {
		return nil, failure{refusal: RefusalPinUnknown}
	}
	x.sum.Backend = b.name
	keep := again && x.api != key.APIUnknown && x.pinned < 0 && x.decided.Outcome != decide.Lone
	a, why := x.attempt(b, header, keep)
	if why.retry == RetryStale {
		x.retried(RetryStale)
		b.transport.CloseIdleConnections() // they are most likely closed as well
		a, why = x.attempt(b, header, keep)
	}
	return a, why
}

// again allows a retry unless the body is gone.
func (x *exchange) again(why Retry) Retry {
	switch {
	case x.stream != nil && x.stream.touched.Load(),
		x.stream == nil && x.length != 0 && x.body.Load() == nil:
		return RetryNone
	}
	return why
}
