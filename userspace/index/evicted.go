package index

import "github.com/tautline/tautline/userspace/key"

// evicted remembers keys that a shelf gave up for want of room, as far as they fit: a
// key has one place, and drives out what is there. It has a power of two of places, or
// none yet. A place that is not in use holds key 0, which is one of 2^64 keys.
type evicted []key.Key

func (e evicted) place(k key.Key) *key.Key { return &e[spread(k, tableShift(len(e)))] }

// add remembers k among at least so many places, a power of two.
func (e *evicted) add(k key.Key, places int) {
	if len(*e) < places {
		*e = make(evicted, places)
	}
	*e.place(k) = k
}

func (e evicted) has(k key.Key) bool { return len(e) > 0 && *e.place(k) == k }

// forget makes room for others: k is held again.
func (e evicted) forget(k key.Key) {
	if e.has(k) {
		*e.place(k) = 0
	}
}

// Once returns how many leading keys the slot holds or gave up for want of room. Who had
// a key had all before it, so the last one that is remembered tells. What it gave up long
// ago may be forgotten, and what it gave up before the first call is: who never asks need
// not pay for it. If the engine still has what the memory gave up, the memory is too small.
func (x *Index) Once(slot int, keys []key.Key) int {
	if !x.asked.Load() {
		x.asked.Store(true)
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.shelf(slot)
	if s == nil {
		return 0
	}
	for n := len(keys); n > 0; n-- {
		if k := keys[n-1]; s.evicted.has(k) || s.find(k) != 0 {
			return n
		}
	}
	return 0
}
