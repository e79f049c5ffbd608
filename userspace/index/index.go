package index

import (
	"slices"
	"sync"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// Mark is one request's claim on a backend: the keys it was marked with. It is
// used up by exactly one of Confirm, Withdraw or Drop. The keys must not change
// until then; the zero Mark claims nothing.
type Mark struct {
	keys       []key.Key
	cover      []int32
	seq        uint64
	slot       int32
	generation uint32
}

type holding struct {
	confirmed time.Duration // deadline; 0 = not
	pending   time.Duration // deadline
	count     int           // pending marks
	first     uint64        // sequence of the oldest of them
	weight    int32
}

type shelf struct {
	live       bool
	generation uint32
	blocks     int // capacity in blocks; 0 = Params.Capacity keys
	used       int
	held       map[key.Key]*holding
	order      []key.Key // least recent first
}

// Index maps keys to the backends that hold them.
type Index struct {
	mu      sync.RWMutex
	params  Params
	clock   time.Duration
	seq     uint64
	shelves []shelf
}

// New returns an empty index. Params must be valid.
func New(p Params) *Index { return &Index{params: p} }

// SetParams changes the settings. A smaller capacity evicts the least recent;
// TTLs apply to later marks and confirmations, existing deadlines stay.
func (x *Index) SetParams(p Params) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.params = p
	for i := range x.shelves {
		x.evict(&x.shelves[i], 0)
	}
}

// Add opens a slot, empty. A slot in use is emptied.
func (x *Index) Add(slot int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.shelves) <= slot {
		x.shelves = append(x.shelves, shelf{})
	}
	s := &x.shelves[slot]
	*s = shelf{live: true, generation: s.generation + 1, held: map[key.Key]*holding{}}
}

// Remove closes a slot and frees its memory. Marks still out there do nothing
// any more, not even when the slot has a new owner.
func (x *Index) Remove(slot int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.shelf(slot); s != nil {
		*s = shelf{generation: s.generation + 1}
	}
}

// Forget empties a slot: its engine restarted and holds nothing.
func (x *Index) Forget(slot int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.shelf(slot); s != nil {
		*s = shelf{live: true, generation: s.generation + 1, blocks: s.blocks, held: map[key.Key]*holding{}}
	}
}

// SetCapacity bounds a slot to as many covered blocks as its engine can hold.
// 0 = not known: Params.Capacity keys. Shrinking evicts the least recent.
func (x *Index) SetCapacity(slot, blocks int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.shelf(slot); s != nil {
		s.blocks = blocks
		x.evict(s, 0)
	}
}

func (x *Index) shelf(slot int) *shelf {
	if slot < 0 || slot >= len(x.shelves) || !x.shelves[slot].live {
		return nil
	}
	return &x.shelves[slot]
}

func (x *Index) marked(m Mark) *shelf {
	s := x.shelf(int(m.slot))
	if s == nil || s.generation != m.generation {
		return nil
	}
	return s
}

func (x *Index) advance(now time.Duration) {
	x.clock = max(x.clock, now)
	for i := range x.shelves {
		s := &x.shelves[i]
		for _, k := range slices.Clone(s.order) {
			h := s.held[k]
			if h.confirmed <= x.clock {
				h.confirmed = 0
			}
			if h.count > 0 && h.pending <= x.clock {
				h.count = 0
			}
			s.tidy(k)
		}
	}
}

func (s *shelf) tidy(k key.Key) {
	if h := s.held[k]; h != nil && h.confirmed == 0 && h.count == 0 {
		s.remove(k)
	}
}

func (s *shelf) remove(k key.Key) {
	if h := s.held[k]; h != nil {
		s.used -= int(h.weight)
		delete(s.held, k)
		s.order = slices.Delete(s.order, slices.Index(s.order, k), slices.Index(s.order, k)+1)
	}
}

func (x *Index) evict(s *shelf, need int) {
	if s.live {
		for len(s.order) > 0 && x.over(s, need) {
			s.remove(s.order[0])
		}
	}
}

func (x *Index) over(s *shelf, need int) bool {
	if s.blocks > 0 {
		return s.used+need > s.blocks
	}
	return len(s.order)+need > x.params.Capacity
}

// Runs sets runs[slot] to the number of leading keys that the slot holds,
// contiguous from key 0, for each slot below len(runs). pending says whether
// marks without an answer yet count.
func (x *Index) Runs(keys []key.Key, now time.Duration, pending bool, runs []int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.advance(now)
	for i := range runs {
		runs[i] = 0
		s := x.shelf(i)
		if s == nil {
			continue
		}
		for _, k := range keys {
			h := s.held[k]
			if h == nil || h.confirmed == 0 && !pending {
				break
			}
			runs[i]++
		}
	}
}

// Mark notes that keys were sent to slot. cover is their geometry, see Covered.
// Leading keys beyond the capacity leave nothing behind.
func (x *Index) Mark(slot int, keys []key.Key, cover []int32, now time.Duration) Mark {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.shelf(slot)
	if s == nil {
		return Mark{}
	}
	x.advance(now)
	x.seq++
	m := Mark{keys: keys, cover: cover, seq: x.seq, slot: int32(slot), generation: s.generation}
	for _, h := range x.touch(s, keys, cover) {
		if h.count == 0 && h.confirmed >= x.clock+x.params.PendingTTL {
			continue // confirmed for longer than the mark would live
		}
		if h.count == 0 {
			h.first = x.seq
		}
		h.count++
		h.pending = max(h.pending, x.clock+x.params.PendingTTL)
	}
	return m
}

// touch makes the leading keys that fit the most recent, heads last.
func (x *Index) touch(s *shelf, keys []key.Key, cover []int32) []*holding {
	n, sum := 0, 0
	for n < len(keys) {
		w := 1
		if s.blocks > 0 {
			w = int(weight(n, cover))
		}
		if s.blocks > 0 && sum+w > s.blocks || s.blocks == 0 && n+1 > x.params.Capacity {
			break
		}
		sum += w
		n++
	}
	missing := 0
	for i := n - 1; i >= 0; i-- {
		if s.held[keys[i]] != nil {
			s.recent(keys[i])
		} else if s.blocks > 0 {
			missing += int(weight(i, cover))
		} else {
			missing++
		}
	}
	x.evict(s, missing)
	var out []*holding
	for i := n - 1; i >= 0; i-- {
		h := s.held[keys[i]]
		if h == nil {
			h = &holding{weight: weight(i, cover)}
			s.held[keys[i]] = h
			s.used += int(h.weight)
			s.order = append(s.order, keys[i])
		}
		s.recent(keys[i])
		out = append(out, h)
	}
	return out
}

func (s *shelf) recent(k key.Key) {
	i := slices.Index(s.order, k)
	s.order = append(slices.Delete(s.order, i, i+1), k)
}

func (h *holding) withdraw(m Mark) {
	if h.count > 0 && m.seq >= h.first {
		h.count--
	}
}

// Confirm turns the marks into holdings: the engine answered with success.
func (x *Index) Confirm(m Mark, now time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.marked(m)
	if s == nil {
		return
	}
	x.advance(now)
	for _, h := range x.touch(s, m.keys, m.cover) {
		h.withdraw(m)
		h.confirmed = max(h.confirmed, x.clock+x.params.TTL)
	}
}

// Withdraw takes back the request's own pending marks and nothing else.
func (x *Index) Withdraw(m Mark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.marked(m); s != nil {
		for _, k := range m.keys {
			if h := s.held[k]; h != nil {
				h.withdraw(m)
				s.tidy(k)
			}
		}
	}
}

// Drop removes the request's keys from the slot, confirmed or not: the engine
// refused it (429 or 5xx).
func (x *Index) Drop(m Mark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.marked(m); s != nil {
		for _, k := range m.keys {
			s.remove(k)
		}
	}
}

// Len returns how many keys the slot holds, pending or confirmed.
func (x *Index) Len(slot int) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if s := x.shelf(slot); s != nil {
		return len(s.order)
	}
	return 0
}
