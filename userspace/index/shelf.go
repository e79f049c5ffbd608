package index

import (
	"math"
	"math/bits"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// The lists that an entry is in.
const (
	byUse       = iota // all entries, the first to be evicted first; see shelf.divider
	byConfirmed        // confirmed ones, by their deadline
	byPending          // marked ones, by their deadline
	numLists
)

// link is a place in a circular list of entry numbers.
type link struct{ prev, next int32 }

// entry is one key at one backend: a cache line. Number 0 of a shelf, and the
// numbers in confirms and pendings, are heads of lists and no keys.
type entry struct {
	key       key.Key
	confirmed time.Duration // deadline; 0 = not confirmed
	pending   time.Duration // deadline of the latest pending mark
	first     uint64        // sequence of the earliest pending mark; without any, see unmarked
	links     [numLists]link
	count     uint16 // pending marks; from 65,535 on they are not told apart
	flight    uint16 // requests in flight that use it; likewise
	weight    int32  // blocks
}

// place is a place in a shelf's table: the upper half of a key's hash and the
// number of its entry, 0 = empty. The hash tells keys apart without a look at
// their entries, which lie all over the memory.
type place uint64

func (p place) entry() int32 { return int32(uint32(p)) }

func (p place) hash() uint64 { return uint64(p) &^ math.MaxUint32 }

// shelf is what one backend holds.
type shelf struct {
	live       bool
	generation uint32 // rises when the shelf is emptied, so that old marks do nothing
	blocks     int    // capacity in blocks; 0 = Params.Capacity keys
	used       int    // blocks
	count      int    // keys
	entries    []entry
	divider    int32 // an entry without a key: before it, by the end of their latest use, what nobody uses; after it, by arrival, what requests in flight use
	free       int32 // unused entries, by links[byUse].next; 0 = none
	table      []place
	shift      uint8 // of a hash, to a place in table
	evicted    evicted
	// Deadlines rise along a list as long as the TTL is the same. So each TTL
	// has lists of its own; the last is the current one.
	confirms []int32
	pendings []int32
}

// minTable is the smallest table; always a power of two.
const minTable = 64

// hash spreads keys over tables, by its upper bits. Keys are hashes already; the
// multiplication is there for those of a simulator that count up.
func hash(k key.Key) uint64 { return uint64(k) * 0x9e3779b97f4a7c15 }

// spread turns a key into a place in a table of 1<<(64-shift).
func spread(k key.Key, shift uint8) int { return int(hash(k) >> shift) }

// tableShift is the shift for a table of size, a power of two.
func tableShift(size int) uint8 { return uint8(64 - bits.TrailingZeros(uint(size))) }

// open makes an empty shelf.
func open(generation uint32, blocks int) shelf {
	s := shelf{
		live: true, generation: generation, blocks: blocks,
		entries: make([]entry, 1, minTable/2),
		table:   make([]place, minTable), shift: tableShift(minTable),
	}
	s.divider = s.take()
	s.push(byUse, 0, s.divider)
	s.confirms = append(s.confirms, s.head(byConfirmed))
	s.pendings = append(s.pendings, s.head(byPending))
	return s
}

// head makes an entry that is the head of an empty list.
func (s *shelf) head(list int) int32 {
	e := s.take()
	s.entries[e].links[list] = link{e, e}
	return e
}

// newTerm starts a list for a new TTL and drops those that ran empty.
func (s *shelf) newTerm(list int, heads []int32) []int32 {
	kept := heads[:0]
	for _, h := range heads {
		if s.entries[h].links[list].next == h {
			s.give(h)
		} else {
			kept = append(kept, h)
		}
	}
	return append(kept, s.head(list))
}

// take returns an unused entry, zeroed.
func (s *shelf) take() int32 {
	if e := s.free; e != 0 {
		s.free = s.entries[e].links[byUse].next
		s.entries[e] = entry{}
		return e
	}
	s.entries = append(s.entries, entry{})
	return int32(len(s.entries) - 1)
}

func (s *shelf) give(e int32) {
	s.entries[e].links[byUse].next = s.free
	s.free = e
}

// push puts e before head: at the end of its list, where head is one.
func (s *shelf) push(list int, head, e int32) {
	last := s.entries[head].links[list].prev
	s.entries[e].links[list] = link{last, head}
	s.entries[last].links[list].next = e
	s.entries[head].links[list].prev = e
}

func (s *shelf) unlink(list int, e int32) {
	l := s.entries[e].links[list]
	s.entries[l.prev].links[list].next = l.next
	s.entries[l.next].links[list].prev = l.prev
}

// weigh sets how many blocks e stands for.
func (s *shelf) weigh(e, w int32) {
	s.used += int(w - s.entries[e].weight)
	s.entries[e].weight = w
}

// find returns the entry of k, 0 when there is none.
func (s *shelf) find(k key.Key) int32 {
	return s.table[s.probe(k)].entry()
}

// probe returns the place of k, or the empty one that it would take.
func (s *shelf) probe(k key.Key) int {
	mask, h := len(s.table)-1, hash(k)
	for i := int(h >> s.shift); ; i = (i + 1) & mask {
		p := s.table[i]
		if p == 0 || p.hash() == h&^math.MaxUint32 && s.entries[p.entry()].key == k {
			return i
		}
	}
}

// first returns the entry that is evicted first. There must be one.
func (s *shelf) first() int32 {
	e := s.entries[0].links[byUse].next
	if e == s.divider {
		e = s.entries[e].links[byUse].next
	}
	return e
}

// locate is find with a guess: keys of one request lie next to each other in the
// order of use.
func (s *shelf) locate(k key.Key, guess int32) int32 {
	if guess != 0 && guess != s.divider && s.entries[guess].key == k {
		return guess
	}
	return s.find(k)
}

// enter makes an entry for k, or finds the one there is.
func (s *shelf) enter(k key.Key) (e int32, isNew bool) {
	i := s.probe(k)
	if s.table[i] != 0 {
		return s.table[i].entry(), false
	}
	if 2*(s.count+1) > len(s.table) {
		s.grow()
		i = s.probe(k)
	}
	s.count++
	s.evicted.forget(k)
	e = s.take()
	s.entries[e].key = k
	s.table[i] = place(hash(k)&^math.MaxUint32 | uint64(e))
	return e, true
}

func (s *shelf) grow() {
	old := s.table
	s.table = make([]place, 2*len(old))
	s.shift = tableShift(len(s.table))
	mask := len(s.table) - 1
	for _, p := range old {
		if p == 0 {
			continue
		}
		i := int(p.hash() >> s.shift)
		for s.table[i] != 0 {
			i = (i + 1) & mask
		}
		s.table[i] = p
	}
}

// leave takes e out of the table and closes the gap.
func (s *shelf) leave(e int32) {
	mask := len(s.table) - 1
	gap := spread(s.entries[e].key, s.shift)
	for s.table[gap].entry() != e {
		gap = (gap + 1) & mask
	}
	for next := (gap + 1) & mask; s.table[next] != 0; next = (next + 1) & mask {
		home := int(s.table[next].hash() >> s.shift)
		if (next-home)&mask >= (next-gap)&mask { // its way from home leads over the gap
			s.table[gap] = s.table[next]
			gap = next
		}
	}
	s.table[gap] = 0
	s.count--
}

// nextDue returns the earliest deadline of the shelf.
func (s *shelf) nextDue() time.Duration {
	due := time.Duration(math.MaxInt64)
	for _, h := range s.confirms {
		if e := s.entries[h].links[byConfirmed].next; e != h {
			due = min(due, s.entries[e].confirmed)
		}
	}
	for _, h := range s.pendings {
		if e := s.entries[h].links[byPending].next; e != h {
			due = min(due, s.entries[e].pending)
		}
	}
	return due
}
