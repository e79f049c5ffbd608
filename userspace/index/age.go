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

// Evicts says whether the slot would have to give up a key to take in so many
// more keys that cover so many blocks, and the age of the first one to go. What the slot holds is as of the latest mark, confirmation or
// look-up.
func (x *Index) Evicts(slot, keys, blocks int, now time.Duration) (age time.Duration, some bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.shelf(slot)
	if s == nil || s.count == 0 {
		return 0, false
	}
	need := keys
	if s.blocks > 0 {
		need = blocks
	}
	if !x.over(s, need) {
		return 0, false
	}
	return x.age(&s.entries[s.first()], now), true
}
