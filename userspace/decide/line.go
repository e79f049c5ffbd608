package decide

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"time"
)

// Asker is what a Line asks about the requests in it. *Fleet is one.
type Asker interface {
	// Room is that of Fleet.
	Room(model string, now Instant) (tokens int64, takes int)
	// Ask is that of Fleet.
	Ask(r Request, now Instant) Decision
}

// Waiter is a request in a Line.
type Waiter[T any] struct {
	For     T       // whom the caller tells
	Request Request // what is asked and routed; MayWait is set. Its keys must stay as they are
	Came    Instant // since when it has waited

	needs    int64 // KV tokens, when it was asked about last
	uncached int64 // prompt tokens to prefill, likewise
	asked    uint64
	due, can bool
	kin      *kin // nil: it is in no line
}

// Due says whether Ready gave the waiter out because its time was over: it is to be
// routed without MayWait.
func (w *Waiter[T]) Due() bool { return w.due }

// Line holds the requests for which no backend had room (ReasonNoRoom), and says who
// may go and in which order: who has waited for the limit, whatever room there is,
// then who has least to prefill, in steps of an engine's batch, then who came first.
// So a conversation whose context is cached goes on before one that would drive it
// out. A Line reads no clock and starts nothing: the caller asks Ready when an answer
// has ended, a poll has come in, backends have changed, or Until is over. It is not safe
// for concurrent use. The zero value is empty, and sends all at once.
type Line[T any] struct {
	Limit time.Duration // that a request waits at most

	waiters []*Waiter[T] // in the order in which they came
	models  map[string]*kin
	may     []*Waiter[T]
	can     []*Waiter[T]
	looks   uint64
}

// kin is what the waiters for one model have in common.
type kin struct {
	waiters int
	least   int64 // none of them needs less
	room    int64 // at the latest look
	takes   int   // backends that take requests for the model, likewise; -1 before any
	changed uint64
	stale   bool // some were asked about before look number changed, at which takes had
}

// lineLooks is how many requests one look asks about. Of more that may fit, half are
// those with least to prefill when they were asked about last, half those for which that
// is longest ago. So a look costs no more however many wait: some milliseconds.
const lineLooks = 256

// Len returns how many wait.
func (l *Line[T]) Len() int { return len(l.waiters) }

// All ranges over those that wait, in the order in which they came.
func (l *Line[T]) All() iter.Seq[*Waiter[T]] { return slices.Values(l.waiters) }

// Until returns how long it takes from now until the next one's time is over. The line
// must not be empty.
func (l *Line[T]) Until(now Instant) time.Duration { return l.waiters[0].Came + l.Limit - now }

// Add takes in a request to which Route answered ReasonNoRoom with d. One that Ready
// gave out may come back, and keeps its place.
func (l *Line[T]) Add(w *Waiter[T], d Decision) {
	w.needs, w.uncached, w.asked = d.Needs, d.Uncached-d.Left, l.looks
	w.due, w.can = false, false
	at := sort.Search(len(l.waiters), func(i int) bool { return l.waiters[i].Came > w.Came })
	l.waiters = slices.Insert(l.waiters, at, w)
	w.kin = l.models[w.Request.Model]
	if w.kin == nil {
		if l.models == nil {
			l.models = map[string]*kin{}
		}
		w.kin = &kin{least: w.needs, takes: -1}
		l.models[w.Request.Model] = w.kin
	}
	w.kin.waiters++
	w.kin.least = min(w.kin.least, w.needs)
}

// Remove takes a request out that waits no longer; false: it is not in the line.
func (l *Line[T]) Remove(w *Waiter[T]) bool {
	if w.kin == nil {
		return false
	}
	at := sort.Search(len(l.waiters), func(i int) bool { return l.waiters[i].Came >= w.Came })
	for l.waiters[at] != w {
		at++
	}
	l.waiters = slices.Delete(l.waiters, at, at+1)
	l.out(w)
	return true
}

func (l *Line[T]) out(w *Waiter[T]) {
	if w.kin.waiters--; w.kin.waiters == 0 {
		delete(l.models, w.Request.Model)
	}
	w.kin = nil
}

// Ready takes those out that can go now and returns them in the order in which they
// are to be routed; the slice is good until the next call. Those before may take the
// room of those behind, so each is routed with MayWait unless it is Due, and goes back
// by Add when there is no room for it any more. Where nobody's time is over,
// nobody's needs are met, as last known, and as many backends take requests as before,
// the cost does not depend on how many wait. When backends come or go all are asked
// about: the one may have left that somebody waits for, or all but one that he may go to.
func (l *Line[T]) Ready(a Asker, now Instant) []*Waiter[T] {
	due := sort.Search(len(l.waiters), func(i int) bool { return now-l.waiters[i].Came < l.Limit })
	some := due > 0
	for model, k := range l.models {
		room, takes := a.Room(model, now)
		if k.takes >= 0 && k.takes != takes {
			k.changed, k.stale = l.looks+1, true
		}
		k.room, k.takes = room, takes
		some = some || k.least <= k.room || k.stale
	}
	if !some {
		return nil
	}
	l.looks++
	l.can, l.may = l.can[:0], l.may[:0]
	for i, w := range l.waiters {
		switch {
		case i < due:
			w.due, w.can = true, true
			l.can = append(l.can, w)
		case w.needs <= w.kin.room || w.asked < w.kin.changed:
			l.may = append(l.may, w)
		}
	}
	for _, w := range l.worthAsking() {
		d := a.Ask(w.Request, now)
		w.uncached, w.asked = d.Uncached-d.Left, l.looks
		if d.Reason == ReasonNoRoom {
			w.needs = d.Needs
			continue
		}
		w.can = true
		l.can = append(l.can, w)
	}
	slices.SortStableFunc(l.can[due:], inTurn[T])
	l.depart()
	return l.can
}

// worthAsking narrows l.may to lineLooks.
func (l *Line[T]) worthAsking() []*Waiter[T] {
	if len(l.may) <= lineLooks {
		return l.may
	}
	slices.SortStableFunc(l.may, inTurn[T])
	slices.SortStableFunc(l.may[lineLooks/2:], func(x, y *Waiter[T]) int { return cmp.Compare(x.asked, y.asked) })
	return l.may[:lineLooks]
}

// inTurn compares who goes first by what is known of them.
func inTurn[T any](x, y *Waiter[T]) int {
	return cmp.Or(cmp.Compare(x.uncached/spreadBatch, y.uncached/spreadBatch), cmp.Compare(x.Came, y.Came))
}

// depart takes those out that can go.
func (l *Line[T]) depart() {
	for _, k := range l.models {
		k.least, k.stale = 1<<63-1, false
	}
	keep := l.waiters[:0]
	for _, w := range l.waiters {
		if w.can {
			l.out(w)
			continue
		}
		w.kin.least = min(w.kin.least, w.needs)
		w.kin.stale = w.kin.stale || w.asked < w.kin.changed
		keep = append(keep, w)
	}
	clear(l.waiters[len(keep):])
	l.waiters = keep
}
