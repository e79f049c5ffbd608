package index

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// Index maps keys to the backends that hold them.
//
// Each backend has a shelf: a bounded list of keys in the order in which its
// engine would give them up, with deadlines. An engine keeps what a request in
// flight uses, and of the rest what was let go latest; so does a shelf. A table over all shelves tells for each key which backends hold
// it, so that the runs of one request cost a look-up per key however many
// backends there are. The table is exact at the instant up to which deadlines
// were worked off; the earliest deadline left says when that must be done again.
type Index struct {
	mu      sync.RWMutex
	params  Params
	clock   time.Duration // latest instant seen by a writer
	due     time.Duration // no deadline is earlier
	seq     uint64        // of the latest mark
	shelves []shelf
	live    []uint64 // set of slots in use
	holders holders
	touched []int32     // scratch of touch
	asked   atomic.Bool // somebody wants to know what was evicted
	warmed  uint64      // what warm read; kept so that its loads stay
}

// New returns an empty index. Params must be valid.
func New(p Params) *Index {
	return &Index{params: p, due: math.MaxInt64, holders: newHolders(1, minTable), live: make([]uint64, 1)}
}

// SetParams changes the settings. A smaller capacity evicts the least recent;
// TTLs apply to later marks and confirmations, existing deadlines stay.
func (x *Index) SetParams(p Params) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.params
	x.params = p
	for slot := range x.shelves {
		s := &x.shelves[slot]
		if !s.live {
			continue
		}
		if p.TTL != old.TTL {
			s.confirms = s.newTerm(byConfirmed, s.confirms)
		}
		if p.PendingTTL != old.PendingTTL {
			s.pendings = s.newTerm(byPending, s.pendings)
		}
		x.evict(slot, s, 0)
	}
}

// Add opens a slot, empty. A slot in use is emptied.
func (x *Index) Add(slot int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.shelves) <= slot {
		x.shelves = append(x.shelves, shelf{})
	}
	if words := slot/64 + 1; words > x.holders.words {
		x.holders.resize(words, x.holders.size)
		x.live = append(x.live, make([]uint64, words-len(x.live))...)
	}
	x.empty(slot)
	x.shelves[slot] = open(x.shelves[slot].generation+1, 0)
	x.live[slot/64] |= 1 << (slot % 64)
}

// Remove closes a slot and frees its memory. Marks still out there do nothing
// any more, not even when the slot has a new owner.
func (x *Index) Remove(slot int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.shelf(slot); s != nil {
		x.empty(slot)
		*s = shelf{generation: s.generation + 1}
		x.live[slot/64] &^= 1 << (slot % 64)
	}
}

// Forget empties a slot: its engine restarted and holds nothing. Marks still
// out there do nothing any more.
func (x *Index) Forget(slot int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.shelf(slot); s != nil {
		x.empty(slot)
		*s = open(s.generation+1, s.blocks)
	}
}

// empty takes a shelf's keys out of the table of holders.
func (x *Index) empty(slot int) {
	s := &x.shelves[slot]
	if !s.live {
		return
	}
	for e := s.entries[0].links[byUse].next; e != 0; e = s.entries[e].links[byUse].next {
		if e != s.divider {
			x.holders.unset(s.entries[e].key, slot, false)
		}
	}
	x.holders.shrink()
}

// SetCapacity bounds a slot to as many covered blocks as its engine can hold.
// 0 = not known: Params.Capacity keys. Shrinking evicts the least recent.
func (x *Index) SetCapacity(slot, blocks int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.shelf(slot); s != nil {
		s.blocks = min(max(blocks, 0), maxCapacity)
		x.evict(slot, s, 0)
	}
}

// Len returns how many keys the slot holds, pending or confirmed, as of the
// latest mark, confirmation or look-up.
func (x *Index) Len(slot int) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if s := x.shelf(slot); s != nil {
		return s.count
	}
	return 0
}

// Runs sets runs[slot] to the number of leading keys that the slot holds,
// contiguous from key 0, for each slot below len(runs). pending says whether
// marks without an answer yet count.
func (x *Index) Runs(keys []key.Key, now time.Duration, pending bool, runs []int) {
	x.mu.RLock()
	for now >= x.due { // deadlines passed: only a writer may work them off
		x.mu.RUnlock()
		x.mu.Lock()
		x.advance(now)
		x.mu.Unlock()
		x.mu.RLock()
	}
	defer x.mu.RUnlock()
	clear(runs)
	for w, live := range x.live {
		if first := w * 64; first < len(runs) && live != 0 {
			x.holders.runs(keys, w, live, pending, runs[first:min(first+64, len(runs))])
		}
	}
}

// runs is Runs for the 64 slots of one word.
func (h *holders) runs(keys []key.Key, word int, live uint64, pending bool, runs []int) {
	if len(runs) < 64 {
		live &= 1<<len(runs) - 1
	}
	cells, stride, mask, shift := h.cells, 1+2*h.words, h.size-1, h.shift
	set := 1 + word
	if pending {
		set += h.words
	}
	for i, k := range keys {
		k = nonZero(k)
		p := spread(k, shift)
		c := p * stride
		for cells[c] != uint64(k) && cells[c] != 0 {
			p = (p + 1) & mask
			c = p * stride
		}
		stay := live & cells[c+set] // an empty cell has no bits
		for gone := live &^ stay; gone != 0; gone &= gone - 1 {
			runs[bits.TrailingZeros64(gone)] = i
		}
		if live = stay; live == 0 {
			return
		}
	}
	for ; live != 0; live &= live - 1 {
		runs[bits.TrailingZeros64(live)] = len(keys)
	}
}

// shelf returns the shelf of a slot in use, or nil.
func (x *Index) shelf(slot int) *shelf {
	if slot < 0 || slot >= len(x.shelves) || !x.shelves[slot].live {
		return nil
	}
	return &x.shelves[slot]
}

// advance works off the deadlines up to now.
func (x *Index) advance(now time.Duration) {
	x.clock = max(x.clock, now)
	if x.clock < x.due {
		return
	}
	x.due = math.MaxInt64
	for slot := range x.shelves {
		s := &x.shelves[slot]
		if !s.live {
			continue
		}
		for _, head := range s.confirms {
			for e := s.entries[head].links[byConfirmed].next; e != head && s.entries[e].confirmed <= x.clock; e = s.entries[head].links[byConfirmed].next {
				s.unlink(byConfirmed, e)
				s.entries[e].confirmed = 0
				if s.entries[e].count > 0 {
					x.holders.unset(s.entries[e].key, slot, true)
				} else {
					x.tidy(slot, s, e)
				}
			}
		}
		for _, head := range s.pendings {
			for e := s.entries[head].links[byPending].next; e != head && s.entries[e].pending <= x.clock; e = s.entries[head].links[byPending].next {
				s.unlink(byPending, e)
				s.entries[e].unmarked(x.params.PendingTTL)
				x.tidy(slot, s, e)
			}
		}
		x.due = min(x.due, s.nextDue())
	}
}

// tidy removes e when nothing holds it any more.
func (x *Index) tidy(slot int, s *shelf, e int32) {
	if h := &s.entries[e]; h.confirmed == 0 && h.count == 0 {
		x.remove(slot, s, e)
	}
}

func (x *Index) remove(slot int, s *shelf, e int32) {
	h := &s.entries[e]
	s.unlink(byUse, e)
	if h.confirmed != 0 {
		s.unlink(byConfirmed, e)
	}
	if h.count > 0 {
		s.unlink(byPending, e)
	}
	s.used -= int(h.weight)
	s.leave(e)
	x.holders.unset(h.key, slot, false)
	s.give(e)
}

// evict removes what would go first until there is room for need more: blocks,
// or keys where the capacity counts keys. What requests in flight use goes last.
func (x *Index) evict(slot int, s *shelf, need int) {
	for s.count > 0 && x.over(s, need) {
		e := s.first()
		if x.asked.Load() {
			s.evicted.add(s.entries[e].key, len(s.table))
		}
		x.remove(slot, s, e)
	}
}

func (x *Index) over(s *shelf, need int) bool {
	if s.blocks > 0 {
		return s.used+need > s.blocks
	}
	return s.count+need > x.params.Capacity
}
