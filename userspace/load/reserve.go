package load

import "time"

// settle is how long a request may be under way before the engine counts it as
// waiting: it must be read and tokenized first.
const settle = 100 * time.Millisecond

// slabSize is how many records are made at once. They are used again, never freed.
const slabSize = 64

// entry is the record of one reservation.
type entry struct {
	use        uint32 // how often the record was handed out; tells an old Reservation
	busy       bool
	slot       int
	generation uint32 // of the account
	tokens     int64
	claim      int64
	sent       time.Duration
	stream     bool
	holds      bool   // tokens are still held and the entry is in its account's list
	probe      uint32 // number of the probe that it is; 0 = none
	prev, next *entry
}

// Reservation is one request's share of a backend's load, from the choice to
// the end of its body. The zero value holds nothing. Copies are the same
// reservation; each part is released once however often it is asked for.
type Reservation struct {
	e   *entry
	use uint32
}

// Reserve books one request and its uncached tokens. stream says that its first
// token can be seen. Of a backend whose back-off is over it becomes the probe.
func (b *Books) Reserve(slot int, tokens int64, stream bool, now time.Duration) Reservation {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(slot)
	if a == nil {
		return Reservation{}
	}
	e := b.free
	if e != nil {
		b.free, e.next = e.next, nil
	} else {
		if len(b.slab) == 0 {
			b.slab = make([]entry, slabSize)
		}
		e, b.slab = &b.slab[0], b.slab[1:]
	}
	tokens = max(tokens, 0)
	*e = entry{
		use: e.use + 1, busy: true, slot: slot, generation: a.generation,
		tokens: tokens, sent: now, stream: stream, holds: true,
	}
	if a.breaker.open && !a.breaker.probing {
		a.breaker.probing = true
		a.breaker.probe++
		e.probe = a.breaker.probe
	}
	a.requests++
	a.tokens += tokens
	if !stream {
		a.hidden++
	}
	e.prev = a.last
	if a.last == nil {
		a.first = e
	} else {
		a.last.next = e
	}
	a.last = e
	return Reservation{e, e.use}
}

// Claim books KV memory that the request will take, in tokens, until its tokens
// are released: from then on the polls show what it holds.
func (b *Books) Claim(r Reservation, tokens int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := r.entry(); e != nil && e.holds {
		b.accounts[e.slot].claimed += tokens - e.claim
		e.claim = tokens
	}
}

// FirstToken releases the tokens: the prompt is prefilled.
func (b *Books) FirstToken(r Reservation, _ time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := r.entry(); e != nil && e.holds {
		a := &b.accounts[e.slot]
		a.release(e)
		a.since += e.claim
		a.decoding++
	}
}

// End releases what the reservation still holds.
func (b *Books) End(r Reservation, _ time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := r.entry()
	if e == nil {
		return
	}
	if a := &b.accounts[e.slot]; a.live && a.generation == e.generation {
		if e.holds {
			a.release(e)
		} else {
			a.decoding--
			if e.claim > 0 { // its answer has been as long as most, and goes too
				a.since -= e.claim + int64(b.models[0].output.value())
			}
		}
		a.requests--
		if e.probe != 0 && e.probe == a.breaker.probe { // no verdict came in between: the next request may try
			a.breaker.probing = false
		}
	}
	e.busy, e.next, e.prev = false, b.free, nil
	b.free = e
}

// entry returns the record while r is the one that uses it.
func (r Reservation) entry() *entry {
	if r.e == nil || r.e.use != r.use || !r.e.busy {
		return nil
	}
	return r.e
}

// release takes e's tokens off the account and e off the list.
func (a *account) release(e *entry) {
	a.tokens -= e.tokens
	a.claimed -= e.claim
	if !e.stream {
		a.hidden--
	}
	e.holds = false
	if e.prev == nil {
		a.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		a.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}

// releaseScheduled releases the tokens of answers that are not streamed once
// the engine has taken them up. Engines serve first come first served, so a
// request that is not among the last `waiting` sent is no longer in the queue.
// The engine's queue may hold requests of others: then tokens are held a little
// longer than needed, never shorter.
func (a *account) releaseScheduled(waiting int, now time.Duration) {
	if a.hidden == 0 {
		return // a long backlog is a long list
	}
	e := a.last
	for ; e != nil && e.sent > now-settle; e = e.prev {
		// too young to be in the engine's count
	}
	for ; e != nil && waiting > 0; e = e.prev {
		waiting--
	}
	for e != nil {
		prev := e.prev
		if !e.stream {
			a.release(e)
			a.decoding++
		}
		e = prev
	}
}
