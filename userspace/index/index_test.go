package index

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/tautline/tautline/userspace/key"
)

const sec = time.Second

func newIndex(t testing.TB, slots int, change func(*Params)) *Index {
	t.Helper()
	p := Default()
	if change != nil {
		change(&p)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	x := New(p)
	for s := range slots {
		x.Add(s)
	}
	return x
}

// keys returns n keys that count up from first.
func keys(first, n int) (ks []key.Key) {
	for i := range n {
		ks = append(ks, key.Key(first+i))
	}
	return ks
}

func hold(x *Index, slot int, ks []key.Key, now time.Duration) {
	x.Confirm(x.Mark(slot, ks, nil, now), now)
}

// run is how many leading keys a slot holds.
func run(x *Index, slot int, ks []key.Key, now time.Duration, pending bool) int {
	runs := make([]int, slot+1)
	x.Runs(ks, now, pending, runs)
	return runs[slot]
}

func wantRun(t *testing.T, x *Index, slot int, ks []key.Key, now time.Duration, pending bool, want int) {
	t.Helper()
	if got := run(x, slot, ks, now, pending); got != want {
		t.Fatalf("at %v slot %d holds a run of %d (pending %v), want %d", now, slot, got, pending, want)
	}
}

func TestCoveredFollowsTheGeometryOfKeys(t *testing.T) {
	for n, want := range map[int]int{
		-1: 0, 0: 0, 1: 1, 448: 448, 449: 450, 456: 464, 457: 468, 464: 496,
		512: 448 + 8*(2+4+8+16+32+64+128+256), 600: 4528,
	} {
		if got := Covered(n, nil); got != want {
			t.Errorf("%d keys cover %d blocks, want %d", n, got, want)
		}
	}
	if got := Covered(3, []int32{5, 9}); got != 9 {
		t.Errorf("own geometry: %d", got)
	}
}

func TestLifeOfAMark(t *testing.T) {
	x := newIndex(t, 2, nil)
	ks := keys(1, 20)
	m := x.Mark(1, ks, nil, 0)
	wantRun(t, x, 1, ks, 0, true, 20)
	wantRun(t, x, 1, ks, 0, false, 0)
	wantRun(t, x, 0, ks, 0, true, 0)
	wantRun(t, x, 1, ks, 30*sec-1, true, 20)
	wantRun(t, x, 1, ks, 30*sec, true, 0)
	if x.Len(1) != 0 || x.holders.count != 0 {
		t.Fatal("an expired mark left keys behind")
	}
	x.Confirm(m, 40*sec) // a long prefill: the answer came after the mark went
	wantRun(t, x, 1, ks, 640*sec-1, false, 20)
	wantRun(t, x, 1, ks, 640*sec, true, 0)
}

func TestWithdrawTakesOnlyTheOwnMark(t *testing.T) {
	x := newIndex(t, 1, nil)
	ks := keys(1, 20)
	a, b := x.Mark(0, ks, nil, 0), x.Mark(0, ks[:10], nil, 0)
	x.Withdraw(a)
	wantRun(t, x, 0, ks, 0, true, 10)
	x.Withdraw(b)
	wantRun(t, x, 0, ks, 0, true, 0)

	late := x.Mark(0, ks, nil, 0)
	other := x.Mark(0, ks, nil, 40*sec) // late's own marks expired at 30 s
	x.Withdraw(late)
	wantRun(t, x, 0, ks, 40*sec, true, 20)
	x.Withdraw(other)
	wantRun(t, x, 0, ks, 40*sec, true, 0)
}

func TestWithdrawLeavesConfirmedKeys(t *testing.T) {
	x := newIndex(t, 1, nil)
	ks := keys(1, 20)
	hold(x, 0, ks, 0)
	x.Withdraw(x.Mark(0, ks, nil, sec))
	wantRun(t, x, 0, ks, sec, false, 20)
}

func TestDropTakesConfirmedKeysOfThatBackendOnly(t *testing.T) {
	x := newIndex(t, 2, nil)
	ks := keys(1, 20)
	hold(x, 0, ks, 0)
	hold(x, 1, ks, 0)
	x.Drop(x.Mark(0, ks[:10], nil, 0))
	wantRun(t, x, 0, ks, 0, true, 0)
	wantRun(t, x, 1, ks, 0, true, 20)
	// The tail is still held behind the dropped head. A run starts at key 0,
	// and holding key 0 again makes nothing contiguous that is not.
	if x.Len(0) != 10 {
		t.Fatalf("%d keys", x.Len(0))
	}
	hold(x, 0, ks[:5], 0)
	wantRun(t, x, 0, ks, 0, true, 5)
}

func TestMatchIsContiguousPerBackend(t *testing.T) {
	x := newIndex(t, 3, nil)
	ks := keys(1, 8)
	hold(x, 0, ks, 0)
	hold(x, 1, ks[1:], 0) // lacks key 0, which another holds
	hold(x, 2, slices.Concat(ks[:3], ks[4:]), 0)
	var runs [3]int
	x.Runs(ks, 0, true, runs[:])
	if runs != [3]int{8, 0, 3} {
		t.Fatalf("runs %v, want [8 0 3]", runs)
	}
}

// Head-first eviction makes whole prompts unmatchable under a little pressure.
func TestHeadsAreEvictedLast(t *testing.T) {
	x := newIndex(t, 1, func(p *Params) { p.Capacity = 8 })
	ks := keys(1, 8)
	hold(x, 0, ks, 0)
	hold(x, 0, keys(100, 1), 0)
	wantRun(t, x, 0, ks, 0, true, 7)
	hold(x, 0, keys(200, 3), 0)
	wantRun(t, x, 0, ks, 0, true, 4)
	wantRun(t, x, 0, keys(100, 1), 0, true, 1)
}

func TestSharedHeadsStayRecentWithTheirLatestUser(t *testing.T) {
	x := newIndex(t, 1, func(p *Params) { p.Capacity = 12 })
	head := keys(1, 4)
	hold(x, 0, slices.Concat(head, keys(100, 4)), 0)
	hold(x, 0, keys(300, 4), 0)
	hold(x, 0, slices.Concat(head, keys(200, 4)), 0) // evicts the tail of the first
	wantRun(t, x, 0, slices.Concat(head, keys(100, 4)), 0, true, 4)
	wantRun(t, x, 0, slices.Concat(head, keys(200, 4)), 0, true, 8)
	wantRun(t, x, 0, keys(300, 4), 0, true, 4)
}

func TestKeysBeyondTheCapacityLeaveNothingBehind(t *testing.T) {
	x := newIndex(t, 1, func(p *Params) { p.Capacity = 10 })
	ks := keys(1, 25)
	m := x.Mark(0, ks, nil, 0)
	if wantRun(t, x, 0, ks, 0, true, 10); x.Len(0) != 10 || x.holders.count != 10 {
		t.Fatalf("%d keys held, %d in the table", x.Len(0), x.holders.count)
	}
	x.Confirm(m, 0)
	x.Remove(0)
	if x.holders.count != 0 {
		t.Fatalf("%d ghosts", x.holders.count)
	}
}

func TestCapacityCountsCoveredBlocks(t *testing.T) {
	x := newIndex(t, 1, nil)
	x.SetCapacity(0, 460) // the 449th key on cover two blocks each
	ks := keys(1, key.MaxKeys)
	hold(x, 0, ks, 0)
	wantRun(t, x, 0, ks, 0, true, 454)
	own := keys(1000, 3)
	x.Confirm(x.Mark(0, own, []int32{100, 200, 459}, 0), 0)
	wantRun(t, x, 0, own, 0, true, 3)
	wantRun(t, x, 0, ks, 0, true, 1)
	x.SetCapacity(0, 200)
	wantRun(t, x, 0, own, 0, true, 2)
	x.SetCapacity(0, 0) // keys again
	hold(x, 0, ks, 0)
	wantRun(t, x, 0, ks, 0, true, key.MaxKeys)
}

func TestShrinkingEvictsTheLeastRecent(t *testing.T) {
	x := newIndex(t, 1, nil)
	old, recent := keys(1, 50), keys(100, 50)
	hold(x, 0, old, 0)
	hold(x, 0, recent, 0)
	p := Default()
	p.Capacity = 60
	x.SetParams(p)
	wantRun(t, x, 0, recent, 0, true, 50)
	wantRun(t, x, 0, old, 0, true, 10)
	x.Add(1) // a new backend takes the current limit
	hold(x, 1, keys(1, 200), 0)
	if x.Len(1) != 60 {
		t.Fatalf("new backend holds %d keys", x.Len(1))
	}
}

func TestTTLChangesApplyToLaterConfirmations(t *testing.T) {
	x := newIndex(t, 1, nil)
	old, later := keys(1, 5), keys(100, 5)
	hold(x, 0, old, 0)
	p := Default()
	p.TTL, p.PendingTTL = 10*sec, sec
	x.SetParams(p)
	hold(x, 0, later, 0)
	hold(x, 0, old[:2], 0) // must not cut the deadline that exists
	pend := keys(200, 5)
	x.Mark(0, pend, nil, 0)
	wantRun(t, x, 0, pend, sec, true, 0)
	wantRun(t, x, 0, later, 10*sec-1, true, 5)
	wantRun(t, x, 0, later, 10*sec, true, 0)
	wantRun(t, x, 0, old, 600*sec-1, true, 5)
	wantRun(t, x, 0, old, 600*sec, true, 0)
}

func TestForgetAndRemoveDisarmMarks(t *testing.T) {
	for name, empty := range map[string]func(*Index){
		"forget": func(x *Index) { x.Forget(0) },
		"reuse":  func(x *Index) { x.Remove(0); x.Add(0) },
	} {
		x := newIndex(t, 1, nil)
		ks := keys(1, 20)
		a, b, c := x.Mark(0, ks, nil, 0), x.Mark(0, ks, nil, 0), x.Mark(0, ks, nil, 0)
		empty(x)
		if x.Len(0) != 0 {
			t.Fatalf("%s: %d keys left", name, x.Len(0))
		}
		mine := x.Mark(0, ks, nil, 0)
		x.Withdraw(a)
		x.Drop(b)
		x.Confirm(c, 0)
		wantRun(t, x, 0, ks, 0, true, 20)
		wantRun(t, x, 0, ks, 0, false, 0)
		x.Confirm(mine, 0)
		wantRun(t, x, 0, ks, 0, false, 20)
	}
}

// An engine holds on to what its running requests use, and gives up the rest in
// the order in which it was let go.
func TestWhatIsInFlightGoesLast(t *testing.T) {
	x := newIndex(t, 1, func(p *Params) { p.Capacity = 6 })
	mark := func(first, n int) Mark {
		m := x.Mark(0, keys(first, n), nil, 0)
		x.Confirm(m, 0)
		return m
	}
	long, short, next := mark(10, 2), mark(20, 2), mark(30, 2)
	x.End(next)
	x.End(short) // arrived before next and ended after it
	mark(40, 3)
	for _, c := range []struct{ first, n, want int }{{10, 2, 2}, {20, 2, 1}, {30, 2, 0}, {40, 3, 3}} {
		wantRun(t, x, 0, keys(c.first, c.n), 0, false, c.want)
	}
	x.End(long)
	mark(50, 2)
	for _, c := range []struct{ first, n, want int }{{10, 2, 1}, {20, 2, 0}, {40, 3, 3}, {50, 2, 2}} {
		wantRun(t, x, 0, keys(c.first, c.n), 0, false, c.want)
	}
}

// A key that several requests use is let go by the last of them.
func TestLastUserLetsGo(t *testing.T) {
	x := newIndex(t, 1, func(p *Params) { p.Capacity = 4 })
	a := x.Mark(0, keys(1, 2), nil, 0)
	b := x.Mark(0, keys(1, 2), nil, 0)
	x.End(a)
	x.End(x.Mark(0, keys(11, 2), nil, 0))
	x.Mark(0, keys(21, 1), nil, 0)
	wantRun(t, x, 0, keys(1, 2), 0, true, 2)
	wantRun(t, x, 0, keys(11, 2), 0, true, 1)
	x.End(b)
	x.Mark(0, keys(31, 2), nil, 0)
	wantRun(t, x, 0, keys(1, 2), 0, true, 1)
	wantRun(t, x, 0, keys(11, 2), 0, true, 0)
}

func TestUnknownSlotsAndEmptyMarksAreHarmless(t *testing.T) {
	x := newIndex(t, 1, nil)
	for _, s := range []int{-1, 1, 1000} {
		m := x.Mark(s, keys(1, 3), nil, 0)
		x.Confirm(m, 0)
		x.Withdraw(m)
		x.Drop(m)
		x.End(m)
		x.Forget(s)
		x.Remove(s)
		x.SetCapacity(s, 5)
		if x.Len(s) != 0 {
			t.Fatalf("slot %d holds keys", s)
		}
	}
	x.Confirm(x.Mark(0, nil, nil, 0), 0)
	x.Runs(nil, 0, true, nil)
	runs := []int{7, 7, 7}
	x.Runs(keys(1, 3), 0, true, runs)
	if !slices.Equal(runs, []int{0, 0, 0}) {
		t.Fatalf("runs %v", runs)
	}
}

// Keys are hashes, so the same one twice in a request is next to impossible;
// it must break nothing all the same.
func TestRepeatedKeysBreakNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 4))
	x := newIndex(t, 2, func(p *Params) { p.Capacity = 9 })
	var marks []Mark
	for i := range 5000 {
		ks := make([]key.Key, 1+rnd.IntN(12))
		for i := range ks {
			ks[i] = key.Key(rnd.IntN(20))
		}
		marks = append(marks, x.Mark(rnd.IntN(2), ks, nil, time.Duration(i)))
		j := rnd.IntN(len(marks))
		switch m := marks[j]; rnd.IntN(3) {
		case 0:
			x.Confirm(m, time.Duration(i))
		case 1:
			x.Withdraw(m)
		case 2:
			x.Drop(m)
		}
		x.End(marks[j])
		marks = slices.Delete(marks, j, j+1)
		for slot := range 2 {
			s := &x.shelves[slot]
			n, prev := -1, int32(0) // the divider is in the list
			for e := s.entries[0].links[byUse].next; e != 0; e = s.entries[e].links[byUse].next {
				if n++; s.entries[e].links[byUse].prev != prev || e != s.divider && s.find(s.entries[e].key) != e || n > 9 {
					t.Fatalf("step %d: slot %d is broken at entry %d", i, slot, e)
				}
				prev = e
			}
			if n != s.count {
				t.Fatalf("step %d: %d keys in order, %d counted", i, n, s.count)
			}
		}
	}
}

func TestReadersAndWritersTogether(t *testing.T) {
	x := newIndex(t, 70, func(p *Params) { p.Capacity, p.TTL, p.PendingTTL = 50, 40, 10 })
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(uint64(g), 5))
			runs := make([]int, 70)
			for i := range 300 {
				slot, now := rnd.IntN(70), time.Duration(i)
				ks := keys(100*rnd.IntN(5), 1+rnd.IntN(60))
				m := x.Mark(slot, ks, nil, now)
				x.Runs(ks, now, rnd.IntN(2) == 0, runs)
				for _, r := range runs {
					if r < 0 || r > 50 {
						t.Errorf("run of %d", r)
					}
				}
				switch rnd.IntN(12) {
				case 0:
					x.Drop(m)
				case 1, 2:
					x.Withdraw(m)
				case 3:
					x.Remove(slot)
					x.Add(slot)
				case 4:
					x.Forget(slot)
				default:
					x.Confirm(m, now)
				}
			}
		}()
	}
	wg.Wait()
	for s := range 70 {
		x.Remove(s)
	}
	if x.holders.count != 0 {
		t.Fatalf("%d keys left", x.holders.count)
	}
}

func TestEntryIsACacheLine(t *testing.T) {
	if n := unsafe.Sizeof(entry{}); n > 64 {
		t.Fatalf("an entry takes %d bytes", n)
	}
}

// TestMemoryIsBoundedAndFreed reports what a key takes with all tables around
// it, and checks that a backend's memory goes with it.
func TestMemoryIsBoundedAndFreed(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	rnd := rand.New(rand.NewPCG(6, 6))
	ks := make([]key.Key, 512)
	empty := heap()
	x := newIndex(t, 1, nil)
	fill := func(slot int) {
		for range 64 { // twice the capacity
			for i := range ks {
				ks[i] = key.Key(rnd.Uint64())
			}
			hold(x, slot, ks, 0)
		}
	}
	for slot := range 8 {
		x.Add(slot)
		fill(slot)
	}
	full := heap()
	n := int64(8 * 16384)
	if x.holders.count != int(n) {
		t.Fatalf("%d keys held, want %d", x.holders.count, n)
	}
	t.Logf("%d bytes per key held by one backend (entry %d, its table %d, the table of holders %d)",
		(full-empty)/n, unsafe.Sizeof(entry{}), len(x.shelves[0].table)*8/16384, int64(len(x.holders.cells))*8/n)
	if perKey := (full - empty) / n; perKey > 160 {
		t.Errorf("%d bytes per key", perKey)
	}
	for slot := range 8 {
		x.Remove(slot)
	}
	if left := heap() - empty; left > 256<<10 {
		t.Errorf("%d bytes left after all backends went", left)
	}
	runtime.KeepAlive(x)
}

func TestValidateNamesTheField(t *testing.T) {
	for _, c := range []struct {
		change func(*Params)
		want   string
	}{
		{func(p *Params) { p.Capacity = 0 }, "prefix_affinity.capacity must"},
		{func(p *Params) { p.Capacity = maxCapacity + 1 }, "prefix_affinity.capacity must"},
		{func(p *Params) { p.CapacityTokens = -1 }, "prefix_affinity.capacity_tokens must"},
		{func(p *Params) { p.TiersFactor = math.NaN() }, "prefix_affinity.kv_tiers_factor must"},
		{func(p *Params) { p.TTL = 0 }, "prefix_affinity.ttl_secs must"},
		{func(p *Params) { p.TTL = math.MaxInt64 }, "prefix_affinity.ttl_secs must"},
		{func(p *Params) { p.PendingTTL = -sec }, "prefix_affinity.pending_secs must"},
	} {
		p := Default()
		c.change(&p)
		if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	p := Default()
	p.TTL = time.Duration(MaxTTLSeconds) * sec
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

func TestBlocksOfAnEngine(t *testing.T) {
	for _, c := range []struct {
		change func(*Params)
		engine int64
		ratio  float64
		want   int
	}{
		{nil, 262144, 4, 4096},
		{nil, 0, 4, 0}, // does not say
		{nil, 1, 0.25, 1},
		{func(p *Params) { p.TiersFactor = 2.5 }, 262144, 4, 10240},
		{func(p *Params) { p.CapacityTokens = 6400 }, 262144, 4, 100},
		{func(p *Params) { p.CapacityTokens = 6400 }, 0, 8, 200},
		{nil, math.MaxInt64, 64, maxCapacity},
	} {
		p := Default()
		if c.change != nil {
			c.change(&p)
		}
		if got := p.Blocks(c.engine, c.ratio); got != c.want {
			t.Errorf("%d tokens at %v bytes: %d blocks, want %d", c.engine, c.ratio, got, c.want)
		}
	}
}
