package load

import "time"

// settle is how long a request may be under way before the engine counts it as
// waiting: it must be read and tokenized first.
const settle = 100 * time.Millisecond

// Reservation is one request's share of a backend's load, from the choice to
// the end of its body. The zero value holds nothing. From Reserve to End it must stay
// where it is: the books link to it. Each part is released once however often it is
// asked for. Its fields are guarded by the lock of the books.
//
// The caller keeps it beside what else it knows of the request. Where thousands wait,
// that comes from memory when one of them ends, and then no second place has to.
type Reservation struct {
	prev, next *Reservation // in the list of its account that holds or young tells
	tokens     int64
	claim      int64
	sent       time.Duration
	began      time.Duration // when its first token came
	slot       int32
	generation uint32 // of the account
	process    uint32 // of the account
	probe      uint32 // number of the probe that it is; 0 = none
	busy       bool
	stream     bool
	holds      bool // tokens are still held: it is in its account's list of those
	young      bool // it is in that of the young
}

// list is a list of reservations.
type list struct{ first, last *Reservation }

func (l *list) add(r *Reservation) {
	r.prev = l.last
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
}

func (l *list) remove(r *Reservation) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}

// Reserve books one request and its uncached tokens in r, which holds nothing. stream
// says that its first token can be seen. Of a backend whose back-off is over it becomes
// the probe.
func (b *Books) Reserve(r *Reservation, slot int, tokens int64, stream bool, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(slot)
	if a == nil {
		return
	}
	tokens = max(tokens, 0)
	*r = Reservation{
		busy: true, slot: int32(slot), generation: a.generation, process: a.process,
		tokens: tokens, sent: now, stream: stream, holds: true,
	}
	if a.breaker.open && !a.breaker.probing {
		a.breaker.probing = true
		a.breaker.probe++
		r.probe = a.breaker.probe
	}
	a.requests++
	a.tokens += tokens
	if !stream {
		a.hidden++
	}
	a.holding.add(r)
}

// Claim books KV memory that the request will take, in tokens, until its tokens
// are released: from then on the polls show what it holds.
func (b *Books) Claim(r *Reservation, tokens int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.holds {
		b.accounts[r.slot].claimed += tokens - r.claim
		r.claim = tokens
	}
}

// FirstToken releases the tokens: the prompt is prefilled, and a poll sent from now on
// shows the memory that was claimed.
func (b *Books) FirstToken(r *Reservation, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.holds {
		a := &b.accounts[r.slot]
		a.release(r)
		a.decoding++
		if r.claim > 0 {
			r.began, r.young = now, true
			a.young.add(r)
			a.taken += r.claim
		}
	}
}

// End releases what the reservation still holds.
func (b *Books) End(r *Reservation, _ time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !r.busy {
		return
	}
	if a := &b.accounts[r.slot]; a.live && a.generation == r.generation {
		if r.holds {
			a.release(r)
		} else {
			a.decoding--
			young := a.age(r)
			if r.claim > 0 && r.process == a.process { // its answer has been as long as most, and goes too
				a.given += int64(b.models[0].output.value())
				if !young {
					a.given += r.claim
				}
			}
		}
		a.requests--
		if r.probe != 0 && r.probe == a.breaker.probe { // no verdict came in between: the next request may try
			a.breaker.probing = false
		}
	}
	r.busy = false
}

// release takes the tokens off the account and the reservation off the list.
func (a *account) release(r *Reservation) {
	a.tokens -= r.tokens
	a.claimed -= r.claim
	if !r.stream {
		a.hidden--
	}
	r.holds = false
	a.holding.remove(r)
}

// age takes the reservation off the young and says whether it was one of them.
func (a *account) age(r *Reservation) bool {
	if !r.young {
		return false
	}
	r.young = false
	a.young.remove(r)
	a.taken -= r.claim
	return true
}

// grow takes in that a poll sent at now shows what memory was taken by then. First tokens
// that were told out of order may stay young until the next poll.
func (a *account) grow(now time.Duration) {
	a.given = 0
	for r := a.young.first; r != nil && r.began <= now; r = a.young.first {
		a.age(r)
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
