package index

import (
	"slices"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

type holding struct {
	confirmed time.Duration // deadline; 0 = not
	pending   time.Duration // deadline
	count     int           // pending marks
	first     uint64        // sequence of the oldest of them
	used      time.Duration // latest mark, while none is pending
	flight    int           // requests in flight that use it
	weight    int32
}

type refShelf struct {
	live       bool
	generation uint32
	blocks     int // capacity in blocks; 0 = Params.Capacity keys
	used       int
	held       map[key.Key]*holding
	order      []key.Key // first to go first; divider stands before those that requests in flight use
}

// divider is no key of the tests.
const divider = key.Key(1 << 63)

// reference is the memory written down as plainly as possible: maps and sorted
// slices, everything looked at every time. The index must agree with it.
type reference struct {
	params  Params
	clock   time.Duration
	seq     uint64
	shelves []refShelf
}

func newReference(p Params) *reference { return &reference{params: p} }

func (x *reference) SetParams(p Params) {
	x.params = p
	for i := range x.shelves {
		x.evict(&x.shelves[i], 0)
	}
}

func (x *reference) Add(slot int) {
	for len(x.shelves) <= slot {
		x.shelves = append(x.shelves, refShelf{})
	}
	s := &x.shelves[slot]
	*s = refShelf{live: true, generation: s.generation + 1, held: map[key.Key]*holding{}, order: []key.Key{divider}}
}

func (x *reference) Remove(slot int) {
	if s := x.shelf(slot); s != nil {
		*s = refShelf{generation: s.generation + 1}
	}
}

func (x *reference) Forget(slot int) {
	if s := x.shelf(slot); s != nil {
		*s = refShelf{live: true, generation: s.generation + 1, blocks: s.blocks, held: map[key.Key]*holding{}, order: []key.Key{divider}}
	}
}

func (x *reference) SetCapacity(slot, blocks int) {
	if s := x.shelf(slot); s != nil {
		s.blocks = blocks
		x.evict(s, 0)
	}
}

func (x *reference) shelf(slot int) *refShelf {
	if slot < 0 || slot >= len(x.shelves) || !x.shelves[slot].live {
		return nil
	}
	return &x.shelves[slot]
}

func (x *reference) marked(m Mark) *refShelf {
	s := x.shelf(int(m.slot))
	if s == nil || s.generation != m.generation {
		return nil
	}
	return s
}

func (x *reference) advance(now time.Duration) {
	x.clock = max(x.clock, now)
	for i := range x.shelves {
		s := &x.shelves[i]
		for _, k := range slices.Clone(s.order) {
			h := s.held[k]
			if h == nil {
				continue
			}
			if h.confirmed <= x.clock {
				h.confirmed = 0
			}
			if h.count > 0 && h.pending <= x.clock {
				h.count, h.used, h.pending = 0, h.pending-x.params.PendingTTL, 0
			}
			s.tidy(k)
		}
	}
}

func (s *refShelf) tidy(k key.Key) {
	if h := s.held[k]; h != nil && h.confirmed == 0 && h.count == 0 {
		s.remove(k)
	}
}

func (s *refShelf) remove(k key.Key) {
	if h := s.held[k]; h != nil {
		s.used -= int(h.weight)
		delete(s.held, k)
		s.take(k)
	}
}

func (x *reference) evict(s *refShelf, need int) {
	if s.live {
		for len(s.held) > 0 && x.over(s, need) {
			s.remove(s.first())
		}
	}
}

func (x *reference) over(s *refShelf, need int) bool {
	if s.blocks > 0 {
		return s.used+need > s.blocks
	}
	return len(s.held)+need > x.params.Capacity
}

func (s *refShelf) first() key.Key {
	if s.order[0] == divider {
		return s.order[1]
	}
	return s.order[0]
}

func (x *reference) Runs(keys []key.Key, now time.Duration, pending bool, runs []int) {
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

func (x *reference) Mark(slot int, keys []key.Key, cover []int32, now time.Duration) Mark {
	s := x.shelf(slot)
	if s == nil {
		return Mark{}
	}
	x.advance(now)
	x.seq++
	m := Mark{keys: keys, cover: cover, seq: x.seq, slot: int32(slot), generation: s.generation}
	for _, h := range x.touch(s, keys, cover) {
		h.flight++
		if h.count == 0 && h.confirmed >= x.clock+x.params.PendingTTL {
			h.used = x.clock
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

// fit returns the leading keys that an empty shelf has room for.
func (x *reference) fit(s *refShelf, keys []key.Key, cover []int32) []key.Key {
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
	return keys[:n]
}

// missing returns the room that keys need which are not there.
func (s *refShelf) missing(keys []key.Key, cover []int32) (room int) {
	for i, k := range keys {
		switch {
		case s.held[k] != nil:
		case s.blocks > 0:
			room += int(weight(i, cover))
		default:
			room++
		}
	}
	return room
}

// touch makes the leading keys that fit the last to go, heads last of all.
func (x *reference) touch(s *refShelf, keys []key.Key, cover []int32) []*holding {
	keys = x.fit(s, keys, cover)
	for i, k := range slices.Backward(keys) {
		if h := s.held[k]; h != nil {
			s.last(k)
			s.used += int(weight(i, cover) - h.weight)
			h.weight = weight(i, cover)
		}
	}
	x.evict(s, s.missing(keys, cover))
	var out []*holding
	for i, k := range slices.Backward(keys) {
		h := s.held[k]
		if h == nil {
			h = &holding{}
			s.held[k] = h
			s.order = append(s.order, k)
		}
		s.last(k)
		s.used += int(weight(i, cover) - h.weight)
		h.weight = weight(i, cover)
		out = append(out, h)
	}
	return out
}

// take takes a key out of the order.
func (s *refShelf) take(k key.Key) {
	i := slices.Index(s.order, k)
	s.order = slices.Delete(s.order, i, i+1)
}

// last makes a key the last to go.
func (s *refShelf) last(k key.Key) {
	s.take(k)
	s.order = append(s.order, k)
}

func (x *reference) End(m Mark) {
	s := x.marked(m)
	if s == nil {
		return
	}
	for _, k := range slices.Backward(m.keys) {
		h := s.held[k]
		if h == nil {
			continue
		}
		if h.flight = max(h.flight-1, 0); h.flight == 0 {
			s.take(k)
			s.order = slices.Insert(s.order, slices.Index(s.order, divider), k)
		}
	}
}

func (h *holding) withdraw(m Mark, ttl time.Duration) {
	if h.count > 0 && m.seq >= h.first {
		if h.count--; h.count == 0 {
			h.used, h.pending = h.pending-ttl, 0
		}
	}
}

func (x *reference) Confirm(m Mark, now time.Duration) {
	s := x.marked(m)
	if s == nil {
		return
	}
	x.advance(now)
	keys := x.fit(s, m.keys, m.cover)
	if !x.over(s, s.missing(keys, m.cover)) {
		// Each comes back next to the key behind it that is there; those behind
		// the last one that is there, before it.
		at := len(s.order)
		for _, k := range slices.Backward(keys) {
			if s.held[k] != nil {
				at = slices.Index(s.order, k)
				break
			}
		}
		for i, k := range slices.Backward(keys) {
			if s.held[k] != nil {
				at = slices.Index(s.order, k) + 1
				continue
			}
			s.held[k] = &holding{weight: weight(i, m.cover), used: x.clock, flight: 1}
			s.used += int(weight(i, m.cover))
			s.order = slices.Insert(s.order, at, k)
			at++
		}
	}
	for _, k := range slices.Backward(keys) {
		if h := s.held[k]; h != nil {
			h.withdraw(m, x.params.PendingTTL)
			h.confirmed = max(h.confirmed, x.clock+x.params.TTL)
		}
	}
}

func (x *reference) Withdraw(m Mark) {
	if s := x.marked(m); s != nil {
		for _, k := range m.keys {
			if h := s.held[k]; h != nil {
				h.withdraw(m, x.params.PendingTTL)
				s.tidy(k)
			}
		}
	}
}

func (x *reference) Drop(m Mark) {
	if s := x.marked(m); s != nil {
		for _, k := range m.keys {
			s.remove(k)
		}
	}
}

func (x *reference) Len(slot int) int {
	if s := x.shelf(slot); s != nil {
		return len(s.held)
	}
	return 0
}

func (x *reference) Age(slot int, k key.Key, now time.Duration) (time.Duration, bool) {
	s := x.shelf(slot)
	if s == nil || s.held[k] == nil {
		return 0, false
	}
	h := s.held[k]
	if h.count > 0 {
		return max(now-(h.pending-x.params.PendingTTL), 0), true
	}
	return max(now-h.used, 0), true
}

func (x *reference) Evicts(slot, keys, blocks int, now time.Duration) (time.Duration, bool) {
	s := x.shelf(slot)
	if s == nil || len(s.held) == 0 || !x.over(s, map[bool]int{false: keys, true: blocks}[s.blocks > 0]) {
		return 0, false
	}
	return x.Age(slot, s.first(), now)
}
