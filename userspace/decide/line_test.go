package decide

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// oracle answers a Line from a table. A request is known by its Bytes.
type oracle struct {
	rooms   map[string]int64
	takes   map[string]int
	answers map[int]Decision // Needs and Uncached; the reason follows from the room, if it is none
	asked   []int
	rooming int
}

func (o *oracle) Room(model string, _ Instant) (int64, int) {
	o.rooming++
	return o.rooms[model], o.takes[model]
}

func (o *oracle) Ask(r Request, _ Instant) Decision {
	o.asked = append(o.asked, r.Bytes)
	return o.says(r)
}

func (o *oracle) says(r Request) Decision {
	d := o.answers[r.Bytes]
	if d.Reason == ReasonNone && d.Needs > o.rooms[r.Model] {
		d.Reason = ReasonNoRoom
	}
	return d
}

// held is what a test puts into a line: who, when it came, what it needs and must fill.
type held struct {
	id       int
	model    string
	came     time.Duration
	needs    int64
	uncached int64
}

func lineOf(limit time.Duration, o *oracle, hs ...held) *Line[int] {
	l := &Line[int]{Limit: limit}
	for _, h := range hs {
		d := Decision{Slot: -1, Needs: h.needs, Uncached: h.uncached, Reason: ReasonNoRoom}
		l.Add(&Waiter[int]{For: h.id, Request: Request{Model: h.model, Bytes: h.id, MayWait: true}, Came: h.came}, d)
		if _, ok := o.answers[h.id]; !ok {
			o.answers[h.id] = Decision{Needs: h.needs, Uncached: h.uncached}
		}
	}
	return l
}

func ids(ws []*Waiter[int]) string {
	var b strings.Builder
	for _, w := range ws {
		fmt.Fprintf(&b, "%d", w.For)
		if w.Due() {
			b.WriteByte('!')
		}
		b.WriteByte(' ')
	}
	return strings.TrimSpace(b.String())
}

func TestWhoMayGo(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name  string
		room  int64
		now   time.Duration
		held  []held
		asked map[int]Decision // what they are answered now, if not what they were
		want  string
		left  int
	}{
		{"nobody waits", 100, 0, nil, nil, "", 0},
		{"no room for anybody", 99, s, []held{{1, "", 0, 100, 0}, {2, "", 0, 200, 0}}, nil, "", 2},
		{"room for one", 100, s, []held{{1, "", 0, 200, 0}, {2, "", 0, 100, 0}}, nil, "2", 1},
		{"the same step: who came first", 100, 3 * s, []held{{2, "", 2 * s, 1, 0}, {1, "", s, 1, 8191}, {3, "", 3 * s, 1, 5}}, nil, "1 2 3", 0},
		{"least to prefill", 100, 3 * s, []held{{1, "", s, 1, 16384}, {2, "", 2 * s, 1, 8192}, {3, "", 3 * s, 1, 8191}}, nil, "3 2 1", 0},
		{"what it must prefill by now", 100, 3 * s, []held{{1, "", s, 1, 90000}, {2, "", 2 * s, 1, 0}}, map[int]Decision{1: {Uncached: 0}, 2: {Uncached: 9000}}, "1 2", 0},
		{"what it needs by now", 100, 3 * s, []held{{1, "", s, 1, 0}, {2, "", 2 * s, 1, 0}}, map[int]Decision{1: {Needs: 101}}, "2", 1},
		{"the limit is over", 0, 60 * s, []held{{1, "", 0, 100, 0}, {2, "", 1, 100, 0}}, nil, "1!", 1},
		{"the limit goes first, and in turn", 100, 61 * s, []held{{3, "", s / 2, 100, 90000}, {2, "", 0, 999, 90000}, {1, "", 2 * s, 100, 0}}, nil, "2! 3! 1", 0},
		{"nobody takes it", 100, s, []held{{1, "", 0, 1, 0}}, map[int]Decision{1: {Slot: -1, Reason: ReasonNotAdmitted}}, "1", 0},
		{"a model of its own", 100, s, []held{{1, "full", 0, 1, 0}, {2, "", 0, 100, 0}}, nil, "2", 1},
	} {
		o := &oracle{rooms: map[string]int64{"": c.room}, answers: map[int]Decision{}}
		l := lineOf(60*s, o, c.held...)
		for id, d := range c.asked {
			o.answers[id] = d
		}
		if got := ids(l.Ready(o, c.now)); got != c.want || l.Len() != c.left {
			t.Errorf("%s: %q go and %d stay, want %q and %d", c.name, got, l.Len(), c.want, c.left)
		}
	}
}

func TestWhatALookCosts(t *testing.T) {
	o := &oracle{rooms: map[string]int64{"": 9, "other": 9}, answers: map[int]Decision{}}
	var all []held
	for i := range 2000 {
		all = append(all, held{i, []string{"", "other"}[i%2], time.Duration(i), 10, int64(i) * spreadBatch})
	}
	l := lineOf(time.Hour, o, all...)
	if l.Ready(o, 0); len(o.asked) != 0 || o.rooming != 2 || l.looks != 0 {
		t.Errorf("nothing fits: asked about %d requests and %d times for room, looked %d times", len(o.asked), o.rooming, l.looks)
	}
	// With room as last known, but not any more, nobody leaves: all are asked in turn.
	for i := range o.answers {
		o.answers[i] = Decision{Needs: 10, Uncached: int64(i) * spreadBatch, Reason: ReasonNoRoom}
	}
	o.rooms[""], o.rooms["other"] = 10, 10
	looks := 0
	for seen := map[int]bool{}; len(seen) < len(all); looks++ {
		if o.asked = o.asked[:0]; looks > 20 {
			t.Fatalf("after %d looks %d of %d were asked about", looks, len(seen), len(all))
		}
		l.Ready(o, 0)
		if len(o.asked) != lineLooks {
			t.Fatalf("a look asked about %d", len(o.asked))
		}
		for i := range lineLooks / 2 {
			if !slices.Contains(o.asked, i) {
				t.Fatalf("%d, which has little to prefill, was not asked about", i)
			}
		}
		for _, id := range o.asked {
			seen[id] = true
		}
	}
	if want := (len(all)-lineLooks/2)/(lineLooks/2) + 1; looks != want {
		t.Errorf("%d looks until all were asked about, want %d", looks, want)
	}
	// One that needs more by now is not asked again until there is that much.
	o.answers[0] = Decision{Needs: 11}
	l.Ready(o, 0)
	o.asked = o.asked[:0]
	if l.Ready(o, 0); slices.Contains(o.asked, 0) {
		t.Error("asked again without room")
	}
	o.rooms[""] = 11
	if got := ids(l.Ready(o, 0)); got != "0" {
		t.Errorf("%q go, want 0", got)
	}
}

func TestLeavingALine(t *testing.T) {
	o := &oracle{rooms: map[string]int64{"": 5}, answers: map[int]Decision{}}
	l := lineOf(time.Minute, o, held{1, "", 1, 5, 0}, held{2, "", 1, 5, 0}, held{3, "", 1, 50, 0})
	var w []*Waiter[int]
	for x := range l.All() {
		w = append(w, x)
	}
	if !l.Remove(w[1]) || l.Remove(w[1]) {
		t.Error("one that waits leaves once")
	}
	got := l.Ready(o, 2)
	if ids(got) != "1" || l.Remove(got[0]) || l.Len() != 1 {
		t.Errorf("%q go, %d stay", ids(got), l.Len())
	}
	if u := l.Until(11); u != time.Minute-10 {
		t.Errorf("the limit is over in %v", u)
	}
	l.Add(got[0], Decision{Needs: 6})
	if o.answers[1] = (Decision{Needs: 5}); ids(l.Ready(o, 2)) != "" {
		t.Error("it came back with needs that are not met")
	}
	for _, x := range []*Waiter[int]{w[2], w[0]} {
		if !l.Remove(x) {
			t.Error("it was there")
		}
	}
	if l.Len() != 0 || len(l.models) != 0 {
		t.Errorf("%d waiters and %d models left", l.Len(), len(l.models))
	}
}

// A fleet that a line asks gives what Route then gives.
func TestLineOfAFleet(t *testing.T) {
	f := newFleet(t, 2, spreading)
	poll(f, 0, 0.7, 0)
	poll(f, 1, 0.9, 0)
	l := &Line[string]{Limit: time.Minute}
	hold := func(name string, first key.Key, n int) {
		t.Helper()
		r := patient(prompt(first, n))
		k, d := f.Route(r, 0)
		if d.Reason != ReasonNoRoom {
			t.Fatalf("%s: %+v", name, d)
		}
		k.Done(0)
		l.Add(&Waiter[string]{For: name, Request: r}, d)
	}
	hold("long", 1, 60)
	hold("short", 1000, 50)
	if ready := l.Ready(f, 0); len(ready) != 0 {
		t.Fatalf("%s goes without room", ready[0].For)
	}
	poll(f, 0, 0.6, 0) // 3,500 tokens: room for the short one, which came later
	ready := l.Ready(f, 0)
	if len(ready) != 1 || ready[0].For != "short" {
		t.Fatalf("%d go", len(ready))
	}
	k, d := f.Route(ready[0].Request, 0)
	if d.Slot != 0 || l.Len() != 1 {
		t.Errorf("%+v, %d wait", d, l.Len())
	}
	k.Done(0)
	f.Remove(0) // the other is full, but there is nobody to wait for
	if ready := l.Ready(f, 0); len(ready) != 1 || ready[0].For != "long" || ready[0].Due() {
		t.Errorf("%d go to the only one left", len(ready))
	}
}

// When backends come or go, who waits is asked about whatever room there is: the only
// one that could ever take him may be gone, or all but one that he may go to.
func TestBackendsThatComeAndGoWhileSomebodyWaits(t *testing.T) {
	for name, c := range map[string]struct {
		request func() Request
		gone    int
	}{
		"the only one that is big enough": {func() Request { return prompt(1, 200) }, 3},
		"all but one that were not tried": {func() Request { r := prompt(1, 100); r.Tried = []int{2, 3}; return r }, 0},
		"all but one at the site":         {func() Request { r := prompt(1, 100); r.Site = "local"; return r }, 0},
	} {
		f := newFleet(t, 2, spreading)
		for _, name := range []string{"small", "big"} {
			f.Add(Spec{Site: "far", Name: name, Models: []string{"m"}})
		}
		for slot := range 3 {
			poll(f, slot, 1, 0)
		}
		f.Observe(3, load.Sample{HasQueue: true, HasKV: true, KVUse: 1, CapacityTok: 40000}, 0)
		l := &Line[int]{Limit: time.Minute}
		r := patient(c.request())
		_, d := f.Route(r, 0)
		if d.Reason != ReasonNoRoom {
			t.Fatalf("%s: %+v", name, d)
		}
		l.Add(&Waiter[int]{Request: r}, d)
		if ready := l.Ready(f, 0); len(ready) != 0 {
			t.Fatalf("%s: goes without room", name)
		}
		f.Drain(c.gone, true)
		if d := f.Ask(r, 0); d.Slot < 0 {
			t.Fatalf("%s: one that comes now waits: %+v", name, d)
		}
		if ready := l.Ready(f, time.Second); len(ready) != 1 || ready[0].Due() {
			t.Errorf("%s: it waits on, when one that comes now need not", name)
		}
	}
}

// Of many, those that one look does not get to are asked about at the next ones.
func TestAllAreAskedWhenBackendsComeOrGo(t *testing.T) {
	o := &oracle{rooms: map[string]int64{}, takes: map[string]int{"": 3, "other": 3}, answers: map[int]Decision{}}
	var all []held
	for i := range 1000 {
		all = append(all, held{i, []string{"", "other"}[i%2], time.Duration(i), 10, int64(i) * spreadBatch})
	}
	l := lineOf(time.Hour, o, all...)
	look := func(want int) {
		t.Helper()
		o.asked = o.asked[:0]
		if l.Ready(o, 0); len(o.asked) != want {
			t.Errorf("asked about %d, want %d", len(o.asked), want)
		}
	}
	look(0)
	o.takes[""] = 2
	look(lineLooks)
	look(500 - lineLooks)
	look(0)
	o.takes[""] = 3
	look(lineLooks)
	o.takes[""], o.takes["other"] = 2, 2
	seen := map[int]bool{}
	for range 1000/(lineLooks/2) + 1 {
		l.Ready(o, 0)
	}
	for _, id := range o.asked[lineLooks:] {
		seen[id] = true
	}
	if len(seen) != len(all) {
		t.Errorf("asked about %d, want %d", len(seen), len(all))
	}
	look(0)
}

// slowLine is the obvious line: it asks about everybody whose needs may be met, and
// about everybody when backends come or go.
type slowLine struct {
	limit time.Duration
	all   []held
	takes map[string]int // at the latest look that somebody waited at
}

func (l *slowLine) ready(o *oracle, now Instant) (go_ []held) {
	var due, can, stay []held
	changed, takes := map[string]bool{}, map[string]int{}
	for _, h := range l.all {
		was, known := l.takes[h.model]
		takes[h.model] = o.takes[h.model]
		changed[h.model] = known && was != takes[h.model]
	}
	for _, h := range l.all {
		d := o.says(Request{Model: h.model, Bytes: h.id})
		switch {
		case now-h.came >= l.limit:
			due = append(due, h)
		case h.needs > o.rooms[h.model] && !changed[h.model]:
			stay = append(stay, h)
		case d.Reason == ReasonNoRoom:
			h.needs = d.Needs
			stay = append(stay, h)
		default:
			h.uncached = d.Uncached
			can = append(can, h)
		}
	}
	byCame := func(a, b held) int { return int(a.came - b.came) }
	slices.SortStableFunc(due, byCame)
	slices.SortStableFunc(can, byCame)
	slices.SortStableFunc(can, func(a, b held) int { return int(a.uncached/8192 - b.uncached/8192) })
	l.all, l.takes = stay, takes
	l.forget()
	return append(due, can...)
}

// forget what was seen of models for which nobody waits.
func (l *slowLine) forget() {
	for model := range l.takes {
		if !slices.ContainsFunc(l.all, func(h held) bool { return h.model == model }) {
			delete(l.takes, model)
		}
	}
}

func FuzzLineAgainstReference(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint16(200), seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16, models bool) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := &oracle{rooms: map[string]int64{}, takes: map[string]int{}, answers: map[int]Decision{}}
		limit := time.Duration(1 + rnd.IntN(30))
		fast, slow := &Line[int]{Limit: limit}, &slowLine{limit: limit}
		in := map[int]*Waiter[int]{}
		model := func() string {
			if models {
				return string(rune('a' + rnd.IntN(3)))
			}
			return ""
		}
		answer := func() Decision {
			d := Decision{Needs: int64(rnd.IntN(20)), Uncached: int64(rnd.IntN(5 * 8192))}
			switch rnd.IntN(8) {
			case 0:
				d.Reason = ReasonNoRoom
			case 1:
				d.Slot, d.Reason = -1, ReasonNotAdmitted
			}
			return d
		}
		now, next := time.Duration(0), 0
		for range min(steps, 400) {
			switch rnd.IntN(8) {
			case 0, 1, 2:
				if len(in) == lineLooks { // beyond it a look is not meant to see all
					continue
				}
				h := held{next, model(), now + time.Duration(next)%3, int64(rnd.IntN(20)), int64(rnd.IntN(5 * 8192))}
				next++
				o.answers[h.id] = answer()
				w := &Waiter[int]{For: h.id, Request: Request{Model: h.model, Bytes: h.id}, Came: h.came}
				fast.Add(w, Decision{Needs: h.needs, Uncached: h.uncached})
				slow.all = append(slow.all, h)
				slices.SortStableFunc(slow.all, func(a, b held) int { return int(a.came - b.came) })
				in[h.id] = w
			case 3:
				for id, w := range in { // any
					if !fast.Remove(w) {
						t.Fatalf("%d was not in the line", id)
					}
					slow.all = slices.DeleteFunc(slow.all, func(h held) bool { return h.id == id })
					slow.forget()
					delete(in, id)
					break
				}
			case 4:
				if rnd.IntN(4) == 0 {
					o.takes[model()] = rnd.IntN(3)
					continue
				}
				o.rooms[model()] = int64(rnd.IntN(20)) - 3
			case 5:
				now += time.Duration(rnd.IntN(10))
			case 6:
				for id := range in {
					if rnd.IntN(2) == 0 {
						o.answers[id] = answer()
					}
				}
			case 7:
				want := slow.ready(o, now)
				got := fast.Ready(o, now)
				for i := range max(len(got), len(want)) {
					if i >= len(got) || i >= len(want) || got[i].For != want[i].id || got[i].Due() != (now-want[i].came >= limit) {
						t.Fatalf("%s go, want %+v", ids(got), want)
					}
				}
				for i, h := range want {
					if got[i].Due() || rnd.IntN(3) > 0 {
						delete(in, h.id)
						continue
					}
					h.needs = int64(rnd.IntN(20)) // those before it took the room
					fast.Add(got[i], Decision{Needs: h.needs, Uncached: h.uncached})
					slow.all = append(slow.all, h)
					slices.SortStableFunc(slow.all, func(a, b held) int { return int(a.came - b.came) })
				}
			}
			if fast.Len() != len(slow.all) || fast.Len() != len(in) {
				t.Fatalf("%d wait, want %d", fast.Len(), len(slow.all))
			}
			if fast.Len() > 0 {
				if u := fast.Until(now); u != slow.all[0].came+limit-now {
					t.Fatalf("the next limit is over in %v", u)
				}
			}
		}
	})
}

func BenchmarkLook(b *testing.B) {
	for _, n := range []int{10, 1000} {
		for _, room := range []int64{9, 10} {
			b.Run(fmt.Sprintf("held=%d/fits=%v", n, room == 10), func(b *testing.B) {
				o := &oracle{rooms: map[string]int64{"": room}, answers: map[int]Decision{}}
				l := &Line[int]{Limit: time.Hour}
				for i := range n {
					lineAdd(l, i)
					o.answers[i] = Decision{Needs: 10, Reason: ReasonNoRoom}
				}
				b.ResetTimer()
				for range b.N {
					o.asked = o.asked[:0]
					l.Ready(o, 0)
				}
			})
		}
	}
}

func lineAdd(l *Line[int], i int) {
	l.Add(&Waiter[int]{For: i, Request: Request{Bytes: i}, Came: time.Duration(i)}, Decision{Needs: 10, Uncached: int64(i%7) * spreadBatch})
}
