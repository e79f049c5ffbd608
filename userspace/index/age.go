package index

import (
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// Age returns how long before now k was last marked at the slot, and whether the
// slot holds it. A key that was gone when it was confirmed counts as marked then.
// After a change of Params.PendingTTL the age of a mark set before may be off by
// the difference; it is never negative.
func (x *Index) Age(slot int, k key.Key, now time.Duration) (age time.Duration, held bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.shelf(slot)
	if s == nil {
		return 0, false
	}
	e := s.find(k)
	if e == 0 {
		return 0, false
	}
	return x.age(&s.entries[e], now), true
}

func (x *Index) age(h *entry, now time.Duration) time.Duration {
	used := time.Duration(h.first)
	if h.count > 0 {
		used = h.pending - x.params.PendingTTL
	}
	return max(now-used, 0)
}

// unmarked ends the latest pending mark of an entry, which lived for ttl. An
// entry has no room for one instant more, so that of the latest mark is worked
// out from its deadline while there is one, and is kept in first afterwards.
func (h *entry) unmarked(ttl time.Duration) {
	h.first = uint64(h.pending - ttl)
	h.count, h.pending = 0, 0
}

// Fill is what a slot would have to take in, and what Evicts finds of it.
type Fill struct {
	Slot, Keys, Blocks int // Keys more keys, which cover Blocks
	// Tier is how many blocks the engine's first tier holds, where that is known and the
	// slot remembers more: what a fill drives out of it counts as given up, at an age as if
	// all was used at one rate; 0 = as many as the slot.
	Tier   int
	Evicts bool          // the slot would have to give up a key
	Age    time.Duration // of the first one to go
}

// Evicts sets Evicts and Age of each of the fills, all of the same moment. What a slot
// holds is as of the latest mark, confirmation or look-up.
func (x *Index) Evicts(fills []Fill, now time.Duration) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for i := range fills {
		f := &fills[i]
		f.Age, f.Evicts = x.evicts(f, now)
	}
}

func (x *Index) evicts(f *Fill, now time.Duration) (age time.Duration, some bool) {
	s := x.shelf(f.Slot)
	if s == nil || s.count == 0 {
		return 0, false
	}
	smaller := f.Tier > 0 && f.Tier < s.blocks
	switch {
	case s.blocks == 0:
		some = x.over(s, f.Keys)
	case smaller:
		some = s.used+f.Blocks > f.Tier
	default:
		some = x.over(s, f.Blocks)
	}
	if !some {
		return 0, false
	}
	age = x.age(&s.entries[s.first()], now)
	if smaller && s.used > f.Tier {
		age = time.Duration(float64(age) * float64(f.Tier) / float64(s.used))
	}
	return age, true
}
