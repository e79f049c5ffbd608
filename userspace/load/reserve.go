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
	process    uint32 // of the account
	tokens     int64
	claim      int64
	sent       time.Duration
	began      time.Duration // when its first token came
	stream     bool
	holds      bool   // tokens are still held: it is in its account's list of those
	young      bool   // it is in that of the young
	probe      uint32 // number of the probe that it is; 0 = none
	prev, next *entry // in that list, or in that of free records
}

// list is a list of reservations.
type list struct{ first, last *entry }

func (l *list) add(e *entry) {
	e.prev = l.last
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
}

func (l *list) remove(e *entry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
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
		use: e.use + 1, busy: true, slot: slot, generation: a.generation, process: a.process,
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
	a.holding.add(e)
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

// FirstToken releases the tokens: the prompt is prefilled, and a poll sent from now on
// shows the memory that was claimed.
func (b *Books) FirstToken(r Reservation, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := r.entry(); e != nil && e.holds {
		a := &b.accounts[e.slot]
		a.release(e)
		a.decoding++
		if e.claim > 0 {
			e.began, e.young = now, true
			a.young.add(e)
			a.taken += e.claim
		}
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
			young := a.age(e)
			if e.claim > 0 && e.process == a.process { // its answer has been as long as most, and goes too
				a.given += int64(b.models[0].output.value())
				if !young {
					a.given += e.claim
				}
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
	a.holding.remove(e)
}

// age takes e off the young and says whether it was one of them.
func (a *account) age(e *entry) bool {
	if !e.young {
		return false
	}
	e.young = false
	a.young.remove(e)
	a.taken -= e.claim
	return true
}

// grow takes in that a poll sent at now shows what memory was taken by then. First tokens
// that were told out of order may stay young until the next poll.
func (a *account) grow(now time.Duration) {
	a.given = 0
	for e := a.young.first; e != nil && e.began <= now; e = a.young.first {
		a.age(e)
	}
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
	e := a.holding.last
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
