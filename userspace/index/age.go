package index

import (
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// Age returns how long before now k was last confirmed or, for want of that,
// marked at the slot, and whether the slot holds it. It is worked out from the
// deadlines, since an entry has no room for another instant: a use that was
// withdrawn, or a mark on a key that was confirmed for longer than the mark would
// have lived, is not seen, and after a change of a TTL the age of what was used
// before is off by the difference, though never negative.
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
	switch marked, confirmed := h.pending-x.params.PendingTTL, h.confirmed-x.params.TTL; {
	case h.confirmed == 0:
		return max(now-marked, 0)
	case h.count == 0:
		return max(now-confirmed, 0)
	default:
		return max(now-max(marked, confirmed), 0)
	}
}

// Evicts says whether the slot would have to give up a key to take in so many
// more keys that cover so many blocks, and the age of the first one to go, the
// least recent. What the slot holds is as of the latest mark, confirmation or
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
	return x.age(&s.entries[s.entries[0].links[byUse].next], now), true
}
