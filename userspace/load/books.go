package load

import (
	"sync"
	"time"
)

// Books are the load accounts of a fleet, one per backend slot.
type Books struct {
	mu       sync.Mutex
	params   Params
	accounts []account
	names    map[string]int
	models   []means // 0 is shared by every model that has no place of its own
}

// account is one backend.
type account struct {
	live       bool
	generation uint32
	process    uint32 // number of the engine's, as far as polls tell
	breaker    breaker
	requests   int   // in flight
	decoding   int   // of them, past their first token
	tokens     int64 // uncached prompt tokens in flight
	claimed    int64 // KV memory that those will take that have no first token
	taken      int64 // KV memory that those have taken that are young
	given      int64 // KV memory that own requests have given back since the latest poll, its answers included
	others     int   // requests beside own ones that the engine had at the latest poll
	served     int   // of them, those that it was serving
	own        int   // own requests in flight then
	hidden     int   // requests that hold tokens and whose first token cannot be seen
	holding    list  // reservations that still hold tokens, in the order of sending
	young      list  // those whose first token came after the latest poll was sent, in the order of that
	window     window
	sample     Sample
	sampled    bool
	at         time.Duration // of sample
	failures   int           // polls failed in a row
	bytes      mean          // canonical bytes per prompt token of what this backend answered
}

// View is one backend at one instant.
type View struct {
	Refusal  Refusal
	Until    time.Duration // end of the ejection, when ejected
	Trial    bool          // admitted so that the next request shows whether it serves again
	Erring   bool          // ejected, or being probed, for errors that it answered; not for 503, nor for silence
	Requests int           // own requests in flight
	Decoding int           // of them, past their first token
	Tokens   int64         // own uncached prompt tokens in flight
	Claimed  int64         // KV tokens that own requests without a first token will take, see Claim
	Queue    int           // worst polled queue depth in the window
	Measured bool          // Queue is known
	Waiting  int           // of the latest sample
	Running  int
	KVUse    float64
	HasKV    bool
	HeldTok  int64 // KV tokens that KVUse stands for; 0 = not known
	Capacity int64 // KV tokens that there are, known with KVUse; 0 = not known
	Others   int   // requests beside own ones that the engine had at the latest poll
	Served   int   // of them, those that it was serving and had not in its queue
	Own      int   // own requests in flight then
	Since    int64 // by how much HeldTok has grown since that poll, as far as own requests tell, rather more than less; see Claim
}

// Engine is what is known about the engine behind a backend, beside its load.
type Engine struct {
	CapacityTok   int64   // KV capacity in tokens; 0 = it does not say
	PollFailures  int     // in a row
	BytesPerToken float64 // canonical prompt bytes per token of what it answered
}

// New returns empty books. Params must be valid.
func New(p Params) *Books {
	return &Books{params: p, names: map[string]int{}, models: []means{newMeans(&p)}}
}

// SetParams changes the settings. What was learned stays; running ejections
// keep their end.
func (b *Books) SetParams(p Params) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.params = p
}

// Add opens an account at slot. A slot in use is closed first.
func (b *Books) Add(slot int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.accounts) <= slot {
		b.accounts = append(b.accounts, account{})
	}
	b.close(slot)
	a := &b.accounts[slot]
	a.live = true
	a.bytes = mean{b.params.BytesPerToken * priorTokens, priorTokens}
}

// Remove closes the account at slot. Reservations still out there release
// nothing when they end, not even when the slot has a new owner by then.
func (b *Books) Remove(slot int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.account(slot) != nil {
		b.close(slot)
	}
}

func (b *Books) close(slot int) {
	a := &b.accounts[slot]
	for _, l := range [...]*list{&a.holding, &a.young} {
		for e := l.first; e != nil; e = l.first {
			l.remove(e)
			e.holds, e.young = false, false
		}
	}
	*a = account{generation: a.generation + 1}
}

// account returns the open account at slot, or nil.
func (b *Books) account(slot int) *account {
	if slot < 0 || slot >= len(b.accounts) || !b.accounts[slot].live {
		return nil
	}
	return &b.accounts[slot]
}

// Drain stops or resumes new requests at slot.
func (b *Books) Drain(slot int, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.account(slot); a != nil {
		a.breaker.draining = on
	}
}

// ConnectFailed records that a connection could not be made or died before it
// carried an answer. now is when that was seen, or when the poll was sent that saw it:
// a failure that is older than an answer under 500 ejects nobody.
func (b *Books) ConnectFailed(slot int, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.account(slot); a != nil {
		a.breaker.connectFailed(&b.params, now)
	}
}

// Unreachable records a poll without a result that found nobody to connect to: a failed
// connect, after which no request is the one to find out whether somebody is there
// again, as long as the polls can. now is when the poll was sent.
func (b *Books) Unreachable(slot int, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.account(slot); a != nil {
		a.failures++
		a.breaker.unreachable(&b.params, now)
	}
}

// Status records the status of an answer's head. 5xx in a row eject; anything
// below 500 shows that the backend serves, so it ends an ejection. 4xx never ejects.
func (b *Books) Status(slot, code int, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.account(slot); a != nil {
		a.breaker.status(&b.params, code, now)
	}
}

// Observe records a poll. now is when the poll was sent. restarted reports that
// the engine is another process than at the poll before: what it held is gone
// and the caller should forget it. When the engine looked, between then and now, is
// not known, so what own requests did meanwhile counts as is safer for View.Since:
// what they took as not shown, what they gave back as shown. Both are put right by the
// next poll.
func (b *Books) Observe(slot int, s Sample, now time.Duration) (restart bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(slot)
	if a == nil {
		return false
	}
	if a.sampled {
		restart = restarted(&a.sample, &s)
	}
	if restart {
		a.window.reset() // the queue of the dead process
		a.others, a.served = 0, 0
		a.process++ // what the dead one held nobody gives back
	}
	keep := a.sample
	a.sample, a.sampled, a.at, a.failures = s, true, now, 0
	a.grow(now)
	if !restart { // a scrape that lacks a series does not undo what an earlier one said
		if !s.HasStartTime && keep.HasStartTime {
			a.sample.HasStartTime, a.sample.StartTime = true, keep.StartTime
		}
		if !s.HasPromptToks && keep.HasPromptToks {
			a.sample.HasPromptToks, a.sample.PromptTokens = true, keep.PromptTokens
		}
		if s.CapacityTok == 0 {
			a.sample.CapacityTok = keep.CapacityTok
		}
	}
	a.breaker.polled(now)
	if s.HasQueue {
		a.window.add(now, b.params.Window, s.depth())
		a.count(&s)
		a.releaseScheduled(max(s.Waiting, 0), now)
	}
	return restart
}

// count works out how many requests of others the engine has. Own ones that it has not
// taken up yet make them seem fewer, those whose end it has not noticed more, and so do
// those that came or ended since it looked, the one as often as the other. Of others
// and own ones as many are taken to wait. What a gateway counts is spread over a site.
func (a *account) count(s *Sample) {
	waiting, running := max(s.Waiting, 0), max(s.Running, 0)
	a.own, a.others, a.served = a.requests, 0, 0
	if s.Engines == 0 {
		a.others = max(waiting+running-a.own, 0)
	}
	if a.others > 0 {
		a.served = a.others - waiting*a.others/(waiting+running)
	}
}

// PollFailed records a poll without a result where somebody was there, or may have
// been. It ejects nobody: a backend whose metrics are stale may serve well, and one that
// does not serve is found by its connects.
func (b *Books) PollFailed(slot int, _ time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.account(slot); a != nil {
		a.failures++
		a.breaker.gone = false
	}
}

// View returns the backend at slot as it is at now.
func (b *Books) View(slot int, now time.Duration) View {
	b.mu.Lock()
	defer b.mu.Unlock()
	var v View
	b.view(slot, now, &v)
	return v
}

// Views fills dst[i] with the view of slots[i], all of the same moment.
func (b *Books) Views(slots []int, now time.Duration, dst []View) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, s := range slots {
		b.view(s, now, &dst[i])
	}
}

// Engine returns what is known about the engine at slot.
func (b *Books) Engine(slot int) Engine {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(slot)
	if a == nil {
		return Engine{BytesPerToken: b.params.BytesPerToken}
	}
	return Engine{a.sample.CapacityTok, a.failures, clamped(a.bytes)}
}

func (b *Books) view(slot int, now time.Duration, v *View) {
	*v = View{}
	a := b.account(slot)
	if a == nil {
		v.Refusal = Absent
		return
	}
	v.Refusal = a.breaker.refusal(now)
	v.Trial = a.breaker.open && v.Refusal == Admitted
	v.Erring = a.breaker.erring() && (v.Refusal == Ejected || v.Refusal == Probing)
	v.Requests, v.Decoding, v.Tokens, v.Claimed = a.requests, a.decoding, a.tokens, a.claimed
	if v.Refusal == Ejected {
		v.Until = a.breaker.until
	}
	if !a.sampled {
		return
	}
	v.Queue, v.Measured = a.window.worst(now, b.params.Window)
	if a.at <= now && a.at >= now-b.params.Window {
		v.Waiting, v.Running = a.sample.Waiting, a.sample.Running
		v.KVUse, v.HasKV = a.sample.KVUse, a.sample.HasKV
		v.Capacity = a.sample.CapacityTok
		v.HeldTok = int64(a.sample.KVUse * float64(a.sample.CapacityTok))
		v.Since = a.taken - a.given
		v.Others, v.Served, v.Own = a.others, a.served, a.own
	}
}
