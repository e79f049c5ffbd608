package decide

import (
	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// Ticket is one attempt of a request at its backend, from the choice to the end
// of its body. Copies are the same ticket, and the zero Ticket is one that
// ended. Every method may be called by any goroutine, any number of times and
// in any order: what it releases is released once.
type Ticket struct {
	f   *Fleet
	fl  *flight
	use uint32
}

// slabSize is how many flights are made at once, slabKeys for how many keys each has
// room from the start.
const (
	slabSize = 64
	slabKeys = 8
)

// flight is the state behind a ticket. Fleets reuse them.
type flight struct {
	// What the end of a request reads lies together: of many in flight it comes
	// from memory.
	use        uint32
	busy       bool
	settled    bool // the marks were used up
	counted    bool // under a policy that spreads: the keys count in the demand, usage teaches the size
	began      bool // its prompt is prefilled, or that cannot be seen
	told       bool // another agent sent it
	generation uint32
	slot       int32
	model      int
	bytes      int
	held       load.Reservation
	mark       index.Mark
	next       *flight
	keys       []key.Key
	expects    expectation
	cover      []int32
}

// newSlab makes flights with room for the keys of a short prompt each, where a longer
// one grows.
func newSlab() []flight {
	slab, keys := make([]flight, slabSize), make([]key.Key, slabSize*slabKeys)
	for i := range slab {
		slab[i].keys = keys[i*slabKeys : i*slabKeys : (i+1)*slabKeys]
	}
	return slab
}

// depart makes the reservation, the marks and the ticket of a decision.
func (f *Fleet) depart(r *Request, d *Decision, m *model, now Instant) Ticket {
	fl := f.idle
	switch {
	case fl != nil:
		f.idle = fl.next
	case len(f.slab) == 0:
		f.slab = newSlab()
		fallthrough
	default:
		fl, f.slab = &f.slab[0], f.slab[1:]
	}
	f.flights++
	fl.use++
	fl.busy, fl.next, fl.began, fl.told = true, nil, !r.Stream, r.Told
	fl.slot, fl.generation = int32(d.Slot), f.backends[d.Slot].generation
	fl.model, fl.bytes = 0, 0
	if len(r.Keys) > 0 { // else Bytes may be anything: nothing to learn from
		fl.bytes = r.Bytes
	}
	if m != nil {
		fl.model = m.means
	}
	fl.keys = append(fl.keys[:0], keysOf(r)...)
	cover := []int32(nil)
	if r.Cover != nil {
		fl.cover = append(fl.cover[:0], r.Cover...)
		cover = fl.cover
	}
	f.load.Reserve(&fl.held, d.Slot, d.Uncached-d.Left, r.Stream, now)
	if fl.expects, fl.counted = (expectation{}), policies[f.params.Policy].spreads; fl.counted {
		fl.expects = f.expects(r, d, fl.keys)
	}
	fl.settled = len(fl.keys) == 0
	if !fl.settled {
		fl.mark = f.index.Mark(d.Slot, fl.keys, cover, now)
	}
	if fl.counted {
		f.demand.add(fl.keys)
		f.load.Claim(&fl.held, f.needs)
	}
	if fl.told {
		f.backends[d.Slot].told++
		f.hears = true
	}
	return Ticket{f, fl, fl.use}
}

// flight returns the state while the ticket is the one that uses it. The
// fleet's lock must be held.
func (t Ticket) flight() *flight {
	if t.fl == nil || !t.fl.busy || t.fl.use != t.use {
		return nil
	}
	return t.fl
}

// FirstToken releases the reserved tokens: the prompt is prefilled.
func (t Ticket) FirstToken(now Instant) {
	if t.f == nil {
		return
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if fl := t.flight(); fl != nil {
		fl.began = true
		t.f.load.FirstToken(&fl.held, now)
	}
}

// settle uses up the marks, once.
func (t Ticket) settle(with func(*index.Index, index.Mark)) {
	if t.f == nil {
		return
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if fl := t.flight(); fl != nil && !fl.settled {
		fl.settled = true
		with(t.f.index, fl.mark)
	}
}

// Confirm remembers the keys: the engine answered with success.
func (t Ticket) Confirm(now Instant) {
	t.settle(func(x *index.Index, m index.Mark) { x.Confirm(m, now) })
}

// Refused forgets the keys at this backend, confirmed ones too: it answered 429
// or 5xx.
func (t Ticket) Refused(Instant) {
	t.settle((*index.Index).Drop)
}

// Withdraw takes back this attempt's pending marks: it failed in another way.
func (t Ticket) Withdraw(Instant) {
	t.settle((*index.Index).Withdraw)
}

// expects notes what is known of a prompt that goes to a backend, before its keys are
// marked there.
func (f *Fleet) expects(r *Request, d *Decision, keys []key.Key) expectation {
	e := expectation{tokens: d.PromptTokens, known: d.PromptTokens - d.Uncached}
	once := r.covered(f.index.Once(d.Slot, keys))
	e.once = max(matched(d.PromptTokens, once, r.whole(r.covered(len(keys)))), e.known)
	e.epoch = f.backends[d.Slot].size.epoch
	for i := range f.cands {
		if c := &f.cands[i]; c.Slot == d.Slot {
			e.queue = c.Tokens
		}
	}
	return e
}

// Usage takes in what the engine reported at the end: it teaches the bytes per
// token and the answer length of the model, and the size of the engine's cache.
// cachedTokens < 0 = the engine did not say. Call it before Done.
func (t Ticket) Usage(promptTokens, cachedTokens, completionTokens int) {
	if t.f == nil {
		return
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	fl := t.flight()
	if fl == nil {
		return
	}
	slot := int(fl.slot)
	if !t.f.live(slot) || t.f.backends[slot].generation != fl.generation {
		slot = -1
	} else {
		b := &t.f.backends[slot]
		b.reportedPrompt += int64(max(promptTokens, 0))
		b.reportedCached += int64(max(cachedTokens, 0))
		fl.began = true
		if fl.counted && !b.gateway { // that has many caches
			t.f.cached(fl, fl.expects.scaled(int64(promptTokens)), cachedTokens)
		}
	}
	t.f.load.Learn(fl.model, slot, fl.bytes, promptTokens, completionTokens)
}

// cached takes in how much of a prompt its backend found in its cache; < 0 = it did not say.
func (f *Fleet) cached(fl *flight, e expectation, tokens int) {
	slot := int(fl.slot)
	b := &f.backends[slot]
	if tokens < 0 {
		b.size.silent(&e)
		return
	}
	for fl.model >= len(f.repeats) {
		f.repeats = append(f.repeats, repeats{})
	}
	f.repeats[fl.model].add(&e, int64(tokens))
	// What agents that tell of theirs seem to have forgotten, another may have just sent.
	if b.blocks > 0 && !f.hears {
		b.size.learn(&e, int64(tokens))
		f.setCapacity(slot, false)
	}
}

// Done ends the ticket: what is still reserved is released, marks that nobody
// settled are withdrawn.
func (t Ticket) Done(now Instant) {
	if t.f == nil {
		return
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.end(t.f, now)
}

// end is Done under the lock of f. A ticket of another fleet is left alone.
func (t Ticket) end(f *Fleet, now Instant) {
	fl := t.flight()
	if fl == nil || t.f != f {
		return
	}
	if !fl.settled {
		f.index.Withdraw(fl.mark)
	}
	f.index.End(fl.mark)
	if fl.counted {
		f.demand.remove(fl.keys)
	}
	if b := &f.backends[fl.slot]; b.live && b.generation == fl.generation {
		if !fl.began {
			b.size.cancelled(&fl.expects)
		}
		if fl.told {
			b.told--
		}
	}
	f.load.End(&fl.held, now)
	fl.busy, fl.mark = false, index.Mark{}
	fl.next, f.idle = f.idle, fl
	f.flights--
}
