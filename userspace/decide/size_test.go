package decide

import (
	"math"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/load"
)

func TestWhatACacheTeaches(t *testing.T) {
	step := func(x float64) float64 { return math.Exp(x) }
	for _, c := range []struct {
		name   string
		e      expectation
		cached int64
		want   float64 // factor afterwards
	}{
		{"as believed", expectation{10000, 8000, 8000, 0}, 8000, 1},
		{"as good as believed: blocks, estimates", expectation{10000, 8000, 8000, 0}, 5800, 1},
		{"all of it gone", expectation{10000, 10000, 10000, 0}, 0, step(-0.1)},
		{"half of it gone", expectation{10000, 8000, 8000, 0}, 4000, step(-0.04)},
		{"gone while it waited", expectation{10000, 10000, 10000, 40000}, 0, 1},
		{"forgotten but there", expectation{10000, 0, 10000, 0}, 10000, step(0.2)},
		{"forgotten, there, and it waited", expectation{10000, 0, 10000, 40000}, 10000, step(0.2)},
		{"forgotten, and half there", expectation{10000, 0, 8000, 0}, 4000, step(0.08)},
		{"forgotten and gone", expectation{10000, 0, 10000, 0}, 0, 1},
		{"others sent it there", expectation{10000, 0, 0, 0}, 10000, 1},
		{"an answer is cached too", expectation{10000, 6000, 6000, 0}, 9000, 1},
		{"too short to tell", expectation{300, 200, 200, 0}, 0, 1},
		{"an empty prompt", expectation{0, 0, 0, 0}, 0, 1},
		{"more than there is", expectation{10000, 0, 10000, 0}, 1 << 40, step(0.2)},
	} {
		s := size{candid: true}
		s.learn(&c.e, c.cached)
		if got := s.factor(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %.4f, want %.4f", c.name, got, c.want)
		}
	}
}

func TestAMemoryThatFailsDoesNotGrow(t *testing.T) {
	stale, forgotten := expectation{1000, 1000, 1000, 0}, expectation{1000, 0, 1000, 0}
	s := size{candid: true}
	s.learn(&stale, 0)
	was := s.factor()
	for range 15 {
		s.learn(&forgotten, 1000)
	}
	if s.factor() > was {
		t.Errorf("it grew from %.3f to %.3f beside what it believed wrongly", was, s.factor())
	}
	for range 1000 {
		s.learn(&forgotten, 1000)
	}
	if math.Abs(s.factor()-sizeMost) > 1e-9 {
		t.Errorf("%.3f, want the most", s.factor())
	}
	for range 1000 {
		s.learn(&stale, 0)
	}
	if math.Abs(s.factor()-1./sizeMost) > 1e-9 {
		t.Errorf("%.3f, want the least", s.factor())
	}
}

// Engines that are silent where nothing was cached would only ever show the memory too
// small.
func TestEnginesThatTellHalfTeachNothing(t *testing.T) {
	var s size
	forgotten := expectation{1000, 0, 1000, 0}
	for range 10 {
		s.learn(&forgotten, 1000)
	}
	if s.factor() != 1 {
		t.Fatalf("%.3f before the engine told of a miss", s.factor())
	}
	s.learn(&forgotten, 0)
	for range 10 {
		s.learn(&forgotten, 1000)
	}
	if s.factor() <= 1 {
		t.Errorf("%.3f afterwards", s.factor())
	}
}

// Through the fleet: the memory follows what the engine says of its cache, under
// priced-spread, until the engine restarts.
func TestTheMemoryFollowsTheCache(t *testing.T) {
	f := newFleet(t, 1, func(p *Params) { p.Policy = PricedSpread })
	report := load.Sample{CapacityTok: 64000, HasQueue: true, HasPromptToks: true, PromptTokens: 100}
	f.Observe(0, report, 0)
	said := state(t, f, 0, 0).IndexCapacity
	ask := func(cached int) {
		tk, d := f.Route(prompt(1000, 100), time.Second)
		tk.Confirm(time.Second)
		tk.Usage(int(d.PromptTokens), cached, 10)
		tk.Done(time.Second)
	}
	ask(0)
	for range 10 {
		ask(-1) // it does not say
	}
	if s := state(t, f, 0, 0); s.IndexCapacity != said || s.CachedTokens != 0 || s.UsageTokens != 6400 {
		t.Fatalf("a silent engine: %d blocks, %d of %d tokens cached; want %d, 0 of 6400", s.IndexCapacity, s.CachedTokens, s.UsageTokens, said)
	}
	for range 7 {
		ask(0)
	}
	small := state(t, f, 0, 0)
	if small.IndexCapacity > said*6/10 || small.SizeFactor > 0.6 {
		t.Fatalf("%d blocks, factor %.2f after seven misses, want half of %d", small.IndexCapacity, small.SizeFactor, said)
	}
	p := f.Params()
	p.Policy = Priced
	f.SetParams(p)
	f.Observe(0, report, 2*time.Second)
	if got := state(t, f, 0, 0).IndexCapacity; got != said {
		t.Errorf("priced: %d blocks, want %d: as the engine says", got, said)
	}
	p.Policy = PricedSpread
	f.SetParams(p)
	f.Observe(0, report, 3*time.Second)
	if got := state(t, f, 0, 0).IndexCapacity; got != small.IndexCapacity {
		t.Errorf("priced-spread again: %d blocks, want %d", got, small.IndexCapacity)
	}
	report.PromptTokens = 1
	f.Observe(0, report, 4*time.Second)
	if got := state(t, f, 0, 0); got.IndexCapacity != said || got.SizeFactor != 1 {
		t.Errorf("after a restart: %d blocks, factor %.2f", got.IndexCapacity, got.SizeFactor)
	}
}

// What was forgotten and is there makes the memory grow: the ticket knows it from before
// its own marks.
func TestTheMemoryGrows(t *testing.T) {
	p := Default()
	p.Policy, p.Exploration = PricedSpread, 0
	ip := index.Default()
	ip.CapacityTokens = 8000 // 125 blocks: one prompt of 100
	f := NewFleet(p, ip, load.Default(), newRand(1))
	f.Add(Spec{Name: "a"})
	said := state(t, f, 0, 0).IndexCapacity
	now := Instant(0)
	for i := range 20 {
		now += time.Second
		r := prompt(1000, 100)
		if i%2 == 1 {
			r = prompt(5000, 100)
		}
		r.Model = ""
		tk, d := f.Route(r, now)
		tk.Confirm(now)
		cached := 0 // of the first two; all later ones are in the cache
		if i > 1 {
			cached = int(d.PromptTokens)
		}
		tk.Usage(int(d.PromptTokens), cached, 10)
		tk.Done(now)
	}
	if got := state(t, f, 0, now).IndexCapacity; got < 200 {
		t.Errorf("%d blocks, said %d; both prompts need 200", got, said)
	}
}
