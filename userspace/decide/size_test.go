package decide

import (
	"math"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
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
		{"as believed", expectation{tokens: 10000, known: 8000, once: 8000, queue: 0}, 8000, 1},
		{"as good as believed: blocks, estimates", expectation{tokens: 10000, known: 8000, once: 8000, queue: 0}, 5800, 1},
		{"all of it gone", expectation{tokens: 10000, known: 10000, once: 10000, queue: 0}, 0, step(-0.1)},
		{"half of it gone", expectation{tokens: 10000, known: 8000, once: 8000, queue: 0}, 4000, step(-0.04)},
		{"gone while it waited", expectation{tokens: 10000, known: 10000, once: 10000, queue: 40000}, 0, 1},
		{"sent before, and as much is still to be prefilled", expectation{tokens: 10000, known: 10000, once: 10000, queue: 10000}, 0, 1},
		{"forgotten but there", expectation{tokens: 10000, known: 0, once: 10000, queue: 0}, 10000, step(0.2)},
		{"forgotten, there, and it waited", expectation{tokens: 10000, known: 0, once: 10000, queue: 40000}, 10000, step(0.2)},
		{"forgotten, and half there", expectation{tokens: 10000, known: 0, once: 8000, queue: 0}, 4000, step(0.08)},
		{"forgotten and gone", expectation{tokens: 10000, known: 0, once: 10000, queue: 0}, 0, 1},
		{"others sent it there", expectation{tokens: 10000, known: 0, once: 0, queue: 0}, 10000, 1},
		{"an answer is cached too", expectation{tokens: 10000, known: 6000, once: 6000, queue: 0}, 9000, 1},
		{"too short to tell", expectation{tokens: 300, known: 200, once: 200, queue: 0}, 0, 1},
		{"an empty prompt", expectation{tokens: 0, known: 0, once: 0, queue: 0}, 0, 1},
		{"more than there is", expectation{tokens: 10000, known: 0, once: 10000, queue: 0}, 1 << 40, step(0.2)},
	} {
		s := size{candid: true}
		s.learn(&c.e, c.cached)
		if got := s.factor(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %.4f, want %.4f", c.name, got, c.want)
		}
	}
}

func TestAMemoryThatFailsDoesNotGrow(t *testing.T) {
	stale, forgotten := expectation{tokens: 1000, known: 1000, once: 1000, queue: 0}, expectation{tokens: 1000, known: 0, once: 1000, queue: 0}
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
	forgotten := expectation{tokens: 1000, known: 0, once: 1000, queue: 0}
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
	f.SetIndexParams(tiers(8))
	report := load.Sample{CapacityTok: 8000, HasQueue: true, HasPromptToks: true, PromptTokens: 100}
	f.Observe(0, report, 0)
	said := state(t, f, 0, 0).IndexCapacity
	ask := func(cached int) { teach(f, prompt(1000, 100), time.Second, 6400, cached) }
	ask(0)
	for range 10 {
		ask(-1) // it does not say
	}
	if s := state(t, f, 0, 0); s.IndexCapacity != said || s.CachedTokens != 0 || s.UsageTokens != 70400 {
		t.Fatalf("a silent engine: %d blocks, %d of %d tokens cached; want %d, 0 of 70400", s.IndexCapacity, s.CachedTokens, s.UsageTokens, said)
	}
	for range 7 {
		ask(0)
	}
	small := state(t, f, 0, 0)
	if small.IndexCapacity > said*6/10 || small.SizeFactor > 0.6 {
		t.Fatalf("%d blocks, factor %.2f after seven misses, want half of %d", small.IndexCapacity, small.SizeFactor, said)
	}
	for range 60 {
		ask(0)
	}
	if got := state(t, f, 0, 0); got.IndexCapacity != said/8 || math.Abs(got.SizeFactor-1./8) > 1e-9 {
		t.Fatalf("%d blocks, factor %.2f; the engine itself says %d", got.IndexCapacity, got.SizeFactor, said/8)
	}
	small = state(t, f, 0, 0)
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
	f := newFleet(t, 1, func(p *Params) { p.Policy = PricedSpread })
	ip := index.Default()
	ip.CapacityTokens = 8000 // 125 blocks: one prompt of 100
	f.SetIndexParams(ip)
	said := state(t, f, 0, 0).IndexCapacity
	now := Instant(0)
	for i := range 20 {
		now += time.Second
		r := prompt(1000, 100)
		if i%2 == 1 {
			r = prompt(5000, 100)
		}
		cached := 0 // of the first two; all later ones are in the cache
		if i > 1 {
			cached = 6400
		}
		teach(f, r, now, 6400, cached)
	}
	if got := state(t, f, 0, now).IndexCapacity; got < 200 {
		t.Errorf("%d blocks, said %d; both prompts need 200", got, said)
	}
}

// tiers are settings by which caches hold so many times what engines report.
func tiers(factor float64) index.Params {
	ip := index.Default()
	ip.TiersFactor = factor
	return ip
}

// teach runs a prompt through: sent, prefilled, answered with that usage.
func teach(f *Fleet, r Request, now Instant, promptTokens, cached int) Decision {
	tk, d := f.Route(r, now)
	tk.Confirm(now)
	tk.FirstToken(now)
	tk.Usage(promptTokens, cached, 10)
	tk.Done(now)
	return d
}

// sized is a fleet of one backend whose cache holds 64,000 tokens, of which the engine
// reports an eighth, and whose engine has told that nothing was cached.
func sized(t *testing.T) *Fleet {
	f := newFleet(t, 1, func(p *Params) { p.Policy = PricedSpread })
	f.SetIndexParams(tiers(8))
	f.Observe(0, load.Sample{CapacityTok: 8000, HasQueue: true, HasPromptToks: true, PromptTokens: 100}, 0)
	teach(f, prompt(1, 10), 0, 640, 0)
	return f
}

// What looks like a cache of another size, and is not.
func TestWhatDoesNotTeachASize(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(f *Fleet, i int)
	}{
		{"a burst of the same prompt, prefilled side by side", func(f *Fleet, i int) {
			var ts []Ticket
			for range 4 {
				tk, _ := f.Route(prompt(key.Key(i)<<32, 100), 0)
				tk.Confirm(0)
				ts = append(ts, tk)
			}
			for _, tk := range ts {
				tk.FirstToken(0)
				tk.Usage(6400, 0, 10)
				tk.Done(0)
			}
		}},
		{"prompts of fewer tokens than most of their length", func(f *Fleet, i int) {
			teach(f, prompt(1<<40, 100), 0, 3200, 3200*i/(i+1)/16*16)
		}},
		{"prompts that are given up before they are prefilled", func(f *Fleet, i int) {
			r := prompt(key.Key(i)<<32, 100)
			tk, _ := f.Route(r, 0)
			tk.Confirm(0) // the head
			tk.Done(0)    // the client leaves, and asks again
			teach(f, r, 0, 6400, 0)
		}},
		{"an engine that says nothing where nothing was cached", func(f *Fleet, i int) {
			r := prompt(1<<40, 100)
			cached := -1
			if i%10 == 0 {
				cached = 6400
			}
			teach(f, r, 0, 6400, cached)
		}},
		{"a prompt of which another agent has told, and that it has just sent", func(f *Fleet, i int) {
			r := prompt(key.Key(i)<<32, 100)
			r.Pinned, r.Told = 0, true
			tk, _ := f.Route(r, 0)
			tk.FirstToken(0)
			tk.Confirm(0)
			tk.Done(0)
			teach(f, prompt(key.Key(i)<<32, 100), 0, 6400, 0)
		}},
		{"a gateway, which has many", func(f *Fleet, i int) {
			f.Observe(0, load.Sample{CapacityTok: 8000, Engines: 2, HasQueue: true, HasPromptToks: true, PromptTokens: 100}, 0)
			teach(f, prompt(1<<40, 100), 0, 6400, 0)
		}},
		{"a prompt sent before a restart", func(f *Fleet, i int) {
			teach(f, prompt(1<<40, 100), 0, 6400, 6400)
			tk, _ := f.Route(prompt(1<<40, 100), 0)
			f.Observe(0, load.Sample{CapacityTok: 8000, HasQueue: true, HasPromptToks: true, PromptTokens: float64(90 - i)}, 0)
			tk.Usage(6400, 0, 10)
			tk.Done(0)
		}},
	} {
		f := sized(t)
		for i := range 60 {
			c.do(f, i+1)
		}
		if got := state(t, f, 0, 0).SizeFactor; math.Abs(got-1) > 0.1 {
			t.Errorf("%s: factor %.3f", c.name, got)
		}
	}
}

// A factor belongs to the size that it was learned beside.
func TestASizeThatIsSetAnewIsNotCorrected(t *testing.T) {
	f := sized(t)
	for range 20 {
		teach(f, prompt(1<<40, 100), 0, 6400, 0)
	}
	if got := state(t, f, 0, 0); got.SizeFactor > 0.3 {
		t.Fatalf("factor %.3f after twenty misses", got.SizeFactor)
	}
	ip := tiers(8)
	ip.TTL = time.Minute
	f.SetIndexParams(ip)
	if got := state(t, f, 0, 0).SizeFactor; got > 0.3 {
		t.Errorf("factor %.3f after another TTL", got)
	}
	ip.CapacityTokens = 16000
	f.SetIndexParams(ip)
	if got := state(t, f, 0, 0); got.SizeFactor != 1 || got.IndexCapacity != ip.Blocks(0, 4) {
		t.Errorf("factor %.3f, %d blocks after a size was set", got.SizeFactor, got.IndexCapacity)
	}
	g := newFleet(t, 1, func(p *Params) { p.Policy = PricedSpread }) // its engine says no size
	for range 20 {
		teach(g, prompt(1<<40, 100), 0, 6400, 0)
	}
	if got := state(t, g, 0, 0).SizeFactor; got != 1 {
		t.Errorf("factor %.3f of a size that nobody knows", got)
	}
}
