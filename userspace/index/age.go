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

// Evicts says whether a slot would have to give up a key to take in so many more keys that
// cover so many blocks, and the age of the first one to go. tier is how many blocks the
// engine's first tier holds, where that is known and the slot remembers more: what a fill
// drives out of it counts as given up, at an age as if all was used at one rate; 0 = as
// many as the slot. What the slot holds is as of the latest mark, confirmation or look-up.
func (x *Index) Evicts(slot, keys, blocks, tier int, now time.Duration) (age time.Duration, some bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.shelf(slot)
	if s == nil || s.count == 0 {
		return 0, false
	}
	smaller := tier > 0 && tier < s.blocks
	switch {
	case s.blocks == 0:
		some = x.over(s, keys)
	case smaller:
		some = s.used+blocks > tier
	default:
		some = x.over(s, blocks)
	}
	if !some {
		return 0, false
	}
	age = x.age(&s.entries[s.first()], now)
	if smaller && s.used > tier {
		age = time.Duration(float64(age) * float64(tier) / float64(s.used))
	}
	return age, true
}
