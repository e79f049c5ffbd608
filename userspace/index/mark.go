package index

import (
	"math"
	"slices"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// Mark is one request's claim on a backend: the keys it was marked with. Its
// pending marks are used up by exactly one of Confirm, Withdraw or Drop; when the
// request is over, End lets go of the keys, once and last. They must not change
// until then; the zero Mark claims nothing.
type Mark struct {
	keys       []key.Key
	cover      []int32
	seq        uint64
	slot       int32
	generation uint32
}

// Mark notes that keys were sent to slot: a request that uses them is in flight. cover is their geometry, see Covered.
// Keys beyond the capacity leave nothing behind. The marks match, where pending
// ones count, until Params.PendingTTL after the latest of them on the same key.
// A key that is confirmed for longer than that needs no mark.
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
	deadline := x.clock + x.params.PendingTTL
	for _, e := range x.touch(slot, s, keys, cover) {
		h := &s.entries[e]
		h.flight = oneMore(h.flight)
		switch {
		case h.count > 0:
			h.count = oneMore(h.count)
			if deadline <= h.pending { // the TTL shrank since
				continue
			}
			s.unlink(byPending, e)
		case h.confirmed >= deadline:
			h.first = uint64(x.clock)
			continue
		default:
			h.count, h.first = 1, x.seq
		}
		h.pending = deadline
		s.push(byPending, s.pendings[len(s.pendings)-1], e)
		x.due = min(x.due, deadline)
	}
	return m
}

// Confirm turns the marks into holdings that match until Params.TTL from now:
// the engine answered with success. It is no use of its own: the order stays, and
// keys that are gone meanwhile come back only where there is room, since what
// drove them out is more recent than their request.
func (x *Index) Confirm(m Mark, now time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.marked(m)
	if s == nil {
		return
	}
	x.advance(now)
	deadline := x.clock + x.params.TTL
	for _, e := range x.restore(int(m.slot), s, m.keys, m.cover) {
		if e == 0 {
			continue
		}
		h := &s.entries[e]
		if h.confirmed == 0 && h.count == 0 { // it was gone
			h.first, h.flight = uint64(x.clock), 1
		}
		s.withdraw(m, e, x.params.PendingTTL)
		if deadline <= h.confirmed {
			continue
		}
		if h.confirmed == 0 {
			x.holders.set(h.key, int(m.slot), true)
		} else {
			s.unlink(byConfirmed, e)
		}
		h.confirmed = deadline
		s.push(byConfirmed, s.confirms[len(s.confirms)-1], e)
		x.due = min(x.due, deadline)
	}
}

// Withdraw takes back the request's own pending marks and nothing else.
func (x *Index) Withdraw(m Mark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.marked(m)
	if s == nil {
		return
	}
	guess := int32(0)
	for _, k := range slices.Backward(m.keys) {
		if e := s.locate(k, guess); e != 0 {
			guess = s.entries[e].links[byUse].next
			s.withdraw(m, e, x.params.PendingTTL)
			x.tidy(int(m.slot), s, e)
		}
	}
}

// Drop removes the request's keys from the slot, confirmed or not: the engine
// refused it (429 or 5xx).
func (x *Index) Drop(m Mark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.marked(m)
	if s == nil {
		return
	}
	guess := int32(0)
	for _, k := range slices.Backward(m.keys) {
		if e := s.locate(k, guess); e != 0 {
			guess = s.entries[e].links[byUse].next
			x.remove(int(m.slot), s, e)
		}
	}
}

// End lets go of the keys: the request is over, and its engine may evict them.
// Of what nobody uses they go last, tails before heads, as engines free the
// blocks of a prompt.
func (x *Index) End(m Mark) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.marked(m)
	if s == nil || x.params.ByArrival {
		return
	}
	guess := int32(0)
	for _, k := range slices.Backward(m.keys) {
		e := s.locate(k, guess)
		if e == 0 {
			continue
		}
		guess = s.entries[e].links[byUse].next
		h := &s.entries[e]
		if h.flight > 0 { // else it was gone in between, and another's by now
			h.flight--
		}
		if h.flight == 0 {
			s.unlink(byUse, e)
			s.push(byUse, s.divider, e)
		}
	}
}

func oneMore(n uint16) uint16 {
	if n == math.MaxUint16 {
		return n
	}
	return n + 1
}

// marked returns the shelf that m claims, or nil when it is not the same any more.
func (x *Index) marked(m Mark) *shelf {
	s := x.shelf(int(m.slot))
	if s == nil || s.generation != m.generation {
		return nil
	}
	return s
}

// withdraw takes m's mark off e. A mark that expired, or that was not set
// because the key was confirmed, is older than the first one counted.
func (s *shelf) withdraw(m Mark, e int32, ttl time.Duration) {
	h := &s.entries[e]
	if h.count == 0 || m.seq < h.first {
		return
	}
	if h.count--; h.count == 0 {
		s.unlink(byPending, e)
		h.unmarked(ttl)
	}
}

// touch makes the leading keys that fit the last to go, heads after tails, and
// adds those it lacks. It returns their entries; the slice is good until the
// next call.
func (x *Index) touch(slot int, s *shelf, keys []key.Key, cover []int32) []int32 {
	own := x.scratch(s, keys, cover)
	keys = keys[:len(own)]
	if n := len(keys); n > 0 && s.find(keys[n-1]) == 0 {
		x.warm(s, keys)
	}
	missing := s.raise(keys, cover, own)
	x.evict(slot, s, missing) // never own ones: they go last and fit
	if missing > 0 {
		x.fill(slot, s, keys, cover, own)
	}
	return own
}

// restore finds the leading keys that fit where they are and adds those that are
// gone, if there is room for them all. It returns their entries, 0 for what is
// not there; the slice is good until the next call.
func (x *Index) restore(slot int, s *shelf, keys []key.Key, cover []int32) []int32 {
	own := x.scratch(s, keys, cover)
	keys = keys[:len(own)]
	missing, guess := 0, int32(0)
	for i, k := range slices.Backward(keys) {
		own[i] = s.locate(k, guess)
		if own[i] != 0 {
			guess = s.entries[own[i]].links[byUse].next
		} else if s.blocks > 0 {
			missing += int(weight(i, cover))
		} else {
			missing++
		}
	}
	if missing > 0 && !x.over(s, missing) {
		x.fill(slot, s, keys, cover, own)
	}
	return own
}

// scratch returns room for the entries of those leading keys that fit.
func (x *Index) scratch(s *shelf, keys []key.Key, cover []int32) []int32 {
	n := x.fitting(s, keys, cover)
	if cap(x.touched) < n {
		x.touched = make([]int32, n, max(n, key.MaxKeys))
	}
	return x.touched[:n]
}

// raise moves the keys that are there to the end of the order of use, in the order of own,
// last to first, and returns the room that the others need. own gets the
// entries, 0 where there is none.
//
// Keys that came with one request lie next to each other, so the next entry of
// the list is the guess for the next key: while it is right, no table is read
// and the whole stretch moves at once.
func (s *shelf) raise(keys []key.Key, cover []int32, own []int32) (missing int) {
	var oldest, newest int32 // the stretch that moves next; 0 = none
	for i := len(keys) - 1; i >= 0; i-- {
		w := weight(i, cover)
		e := int32(0)
		if newest != 0 {
			e = s.entries[newest].links[byUse].next
		}
		if e == 0 || e == s.divider || s.entries[e].key != keys[i] {
			if newest != 0 {
				s.move(oldest, newest)
			}
			e = s.find(keys[i])
			oldest, newest = e, 0
		}
		own[i] = e
		switch {
		case e != 0:
			newest = e
			s.weigh(e, w)
		case s.blocks > 0:
			missing += int(w)
		default:
			missing++
		}
	}
	if newest != 0 {
		s.move(oldest, newest)
	}
	return missing
}

// move moves a stretch of the order of use to its end.
func (s *shelf) move(oldest, newest int32) {
	before, after := s.entries[oldest].links[byUse].prev, s.entries[newest].links[byUse].next
	if after == 0 {
		return
	}
	s.entries[before].links[byUse].next = after
	s.entries[after].links[byUse].prev = before
	last := s.entries[0].links[byUse].prev
	s.entries[oldest].links[byUse].prev = last
	s.entries[last].links[byUse].next = oldest
	s.entries[newest].links[byUse].next = 0
	s.entries[0].links[byUse].prev = newest
}

// fill adds the keys that have no entry, each in its place among those that have.
func (x *Index) fill(slot int, s *shelf, keys []key.Key, cover []int32, own []int32) {
	at := int32(0) // the entry that the next new one goes before
	for i := len(own) - 1; i >= 0 && at == 0; i-- {
		at = own[i]
	}
	for i := len(own) - 1; i >= 0; i-- {
		if own[i] != 0 {
			at = s.entries[own[i]].links[byUse].next
			continue
		}
		e, isNew := s.enter(keys[i])
		own[i] = e
		if !isNew {
			continue // a request with the same key twice
		}
		x.holders.set(keys[i], slot, false)
		s.weigh(e, weight(i, cover))
		s.push(byUse, at, e)
	}
}

// warm reads the places of keys in both tables without looking at them. The
// tables of many backends are larger than the caches, and a prompt that is new
// has its keys all over them. Probing waits for one miss after the other, since
// each depends on a comparison; these loads depend on nothing, so they miss
// together.
func (x *Index) warm(s *shelf, keys []key.Key) {
	cells, stride, shift := x.holders.cells, 1+2*x.holders.words, x.holders.shift
	sum := x.warmed
	for _, k := range keys {
		sum += cells[spread(k, shift)*stride] + uint64(s.table[spread(k, s.shift)])
	}
	x.warmed = sum
}

// fitting returns how many of the keys fit an empty shelf.
func (x *Index) fitting(s *shelf, keys []key.Key, cover []int32) int {
	if s.blocks == 0 {
		return min(len(keys), x.params.Capacity)
	}
	room := s.blocks
	if cover == nil && len(keys) <= key.DenseKeys {
		return min(len(keys), room)
	}
	for i := range keys {
		if room -= int(weight(i, cover)); room < 0 {
			return i
		}
	}
	return len(keys)
}
