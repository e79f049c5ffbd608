package decide

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// stranger is an agent under priced-spread before backends of these names, which others
// use too.
func stranger(seed uint64, names ...string) *Fleet {
	f := among(seed, names...)
	for i := range names {
		f.Observe(i, load.Sample{Running: 3, HasQueue: true}, 0)
	}
	return f
}

// among is one that has polled none of them yet.
func among(seed uint64, names ...string) *Fleet {
	p := Default()
	p.Policy, p.Exploration, p.SharedKeys = PricedSpread, 0, true
	f := NewFleet(p, index.Default(), load.Default(), newRand(seed))
	for _, n := range names {
		f.Add(Spec{Site: "local", Name: n})
	}
	return f
}

func long(first key.Key) Request {
	r := prompt(first, 200)
	r.Model = ""
	return r
}

// Agents that never heard of each other send the same prompt to the same backend,
// whatever the order in which they know the backends.
func TestStrangersAgree(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	counts := map[string]int{}
	for p := range 200 {
		var to []string
		for seed := range uint64(4) {
			mine := append([]string(nil), names...)
			newRand(seed).Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			f := stranger(seed, mine...)
			tk, d := f.Route(long(key.Key(1+p)<<32), 0)
			to = append(to, mine[d.Slot])
			if d.Left != 6400 || d.Uncached != 12800 {
				t.Fatalf("%d of %d tokens left by others, want half of 12800", d.Left, d.Uncached)
			}
			if s := f.Snapshot(0, nil)[d.Slot]; s.Uncached != 6400 || s.MatchedTokens != 0 {
				t.Fatalf("%d tokens reserved, %d matched; want 6400, 0", s.Uncached, s.MatchedTokens)
			}
			tk.Done(0)
		}
		for _, n := range to {
			if n != to[0] {
				t.Fatalf("prompt %d went to %v", p, to)
			}
		}
		counts[to[0]]++
	}
	for _, n := range names {
		if counts[n] < 20 {
			t.Errorf("homes: %v, want some 40 each", counts)
		}
	}
}

func TestHomes(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	send := func(f *Fleet, r Request) Decision {
		tk, d := f.Route(r, 0)
		tk.Confirm(0)
		tk.Done(0)
		return d
	}
	// another is an agent that has not sent the long prompt, and the prompt's home.
	another := func() (g *Fleet, home int) {
		return stranger(1, names...), send(stranger(1, names...), long(1<<32)).Slot
	}
	t.Run("nobody else", func(t *testing.T) {
		f := newFleet(t, 4, func(p *Params) { p.Policy, p.SharedKeys = PricedSpread, true })
		f.Observe(0, load.Sample{HasQueue: true}, 0)
		if d := send(f, long(1<<32)); d.Left != 0 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("requests that the engine has not seen end are not others", func(t *testing.T) {
		f := newFleet(t, 1, func(p *Params) { p.Policy = PricedSpread })
		for range 10 {
			tk, _ := f.Route(long(1<<32), 0)
			defer tk.Done(0)
		}
		f.Observe(0, load.Sample{Running: 12, HasQueue: true}, 0)
		if f.Shared() {
			t.Error("two of twelve make others")
		}
		f.Observe(0, load.Sample{Running: 20, HasQueue: true}, 0)
		if !f.Shared() {
			t.Error("twelve of thirty-two do not")
		}
	})
	t.Run("nor are polls that are late", func(t *testing.T) {
		f := newFleet(t, 1, func(p *Params) { p.Policy = PricedSpread })
		last, since := 0, 0
		rnd := newRand(5)
		for range 400 { // the engine tells how many there were a poll ago
			var ts []Ticket
			for range rnd.IntN(5) {
				tk, _ := f.Route(long(1<<32), 0)
				ts = append(ts, tk)
			}
			f.Observe(0, load.Sample{Running: last, HasQueue: true}, 0)
			last = len(ts)
			if f.Shared() {
				since++
			}
			for _, tk := range ts {
				tk.Done(0)
			}
		}
		if since > 40 {
			t.Errorf("shared after %d of 400 polls", since)
		}
		for range 100_000 {
			f.Observe(0, load.Sample{HasQueue: true}, 0)
		}
		if f.Shared() {
			t.Error("shared after a night without requests")
		}
	})
	t.Run("others at another model's backends are not here", func(t *testing.T) {
		f := newFleet(t, 2, func(p *Params) { p.Policy, p.SharedKeys = PricedSpread, true })
		busy := f.Add(Spec{Site: "local", Name: "z", Models: []string{"common"}})
		f.Observe(busy, load.Sample{Running: 50, HasQueue: true}, 0)
		if d := send(f, prompt(1<<32, 200)); d.Left != 0 || !f.Shared() {
			t.Errorf("%+v", d)
		}
	})
	t.Run("nor are those behind a gateway, and it is no home", func(t *testing.T) {
		f := stranger(1, names...)
		g := f.Add(Spec{Site: "far", Name: "gateway"})
		f.Observe(g, load.Sample{Running: 50, Engines: 8, HasQueue: true}, 0)
		for p := range key.Key(40) {
			if d := send(f, long((p+1)<<32)); d.Left == 0 || d.Slot == g {
				t.Errorf("%+v", d)
			}
		}
		h := newFleet(t, 2, func(p *Params) { p.Policy, p.SharedKeys = PricedSpread, true })
		g = h.Add(Spec{Site: "far", Name: "gateway", Models: []string{"m"}})
		h.Observe(g, load.Sample{Running: 50, Engines: 8, HasQueue: true}, 0)
		if d := send(h, prompt(1<<32, 200)); d.Left != 0 || h.Shared() {
			t.Errorf("%+v", d)
		}
	})
	t.Run("a lone backend is nobody's home", func(t *testing.T) {
		f := stranger(1, "a")
		if d := send(f, long(1<<32)); d.Left != 0 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("engines short of memory come last for what all lack", func(t *testing.T) {
		f := stranger(1, "a", "b")
		f.Observe(0, load.Sample{Running: 3, Waiting: 20, HasQueue: true, KVUse: 0.97, HasKV: true}, 0)
		f.Observe(1, load.Sample{Running: 3, HasQueue: true, KVUse: 0.5, HasKV: true}, 0)
		for p := range key.Key(40) {
			r := prompt((p+1)<<32, 30)
			r.Model = ""
			if d := send(f, r); d.Slot != 1 {
				t.Fatalf("%+v", d)
			}
		}
	})
	t.Run("other policies have none", func(t *testing.T) {
		f := stranger(1, names...)
		p := f.Params()
		p.Policy = Priced
		f.SetParams(p)
		if d := send(f, long(1<<32)); d.Left != 0 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("nor have keys that no other agent makes", func(t *testing.T) {
		f := stranger(1, names...)
		p := f.Params()
		p.SharedKeys = false
		f.SetParams(p)
		if d := send(f, long(1<<32)); d.Left != 0 || f.cands[0].Others != 3 {
			t.Errorf("%+v, %d others", d, f.cands[0].Others)
		}
	})
	t.Run("a conversation goes on where it began", func(t *testing.T) {
		f := stranger(1, names...)
		d := send(f, long(1<<32))
		more := long(1 << 32)
		for i := range key.Key(50) {
			more.Keys = append(more.Keys, 9<<32+i)
		}
		more.Bytes += 50 * key.BlockBytes
		if next := send(f, more); next.Slot != d.Slot || next.Left != 0 || next.Run != 200 {
			t.Errorf("first %+v, then %+v", d, next)
		}
	})
	t.Run("behind a common beginning the next key has a home", func(t *testing.T) {
		f := stranger(1, names...)
		for slot := range names {
			r := long(1 << 32)
			r.Pinned = slot
			send(f, r)
		}
		more := long(1 << 32)
		for i := range key.Key(200) {
			more.Keys = append(more.Keys, 9<<32+i)
		}
		more.Bytes *= 2
		d := send(f, more)
		best := 0
		for slot := range names {
			if rendezvous(9<<32, f.backends[slot].id) > rendezvous(9<<32, f.backends[best].id) {
				best = slot
			}
		}
		if d.Slot != best || d.Left != 6400 || d.Run != 200 {
			t.Errorf("%+v, want slot %d", d, best)
		}
	})
	t.Run("one that takes nothing is nobody's home", func(t *testing.T) {
		g, home := another()
		g.Drain(home, true)
		if d := send(g, long(1<<32)); d.Slot == home || d.Left != 6400 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("one without memory has nothing left", func(t *testing.T) {
		g, home := another()
		g.Observe(home, load.Sample{Running: 3, Waiting: 1, HasQueue: true, KVUse: 0.95, HasKV: true}, 0)
		if d := send(g, long(1<<32)); d.Left != 0 {
			t.Errorf("%+v", d)
		}
	})
	t.Run("nor has one without room for the prompt", func(t *testing.T) {
		for tokens, want := range map[int64]int64{100_000: 0, 1_000_000: 6400} {
			g, home := another()
			g.Observe(home, load.Sample{Running: 3, HasQueue: true, KVUse: 0.95, HasKV: true, CapacityTok: tokens}, 0)
			if d := send(g, long(1<<32)); d.Left != want || want > 0 && d.Slot != home {
				t.Errorf("%d tokens: %+v", tokens, d)
			}
		}
	})
	t.Run("load goes before a home", func(t *testing.T) {
		g, home := another()
		for i := range key.Key(20) {
			r := long((100 + i) << 32)
			r.Pinned = home
			g.Route(r, 0)
		}
		if d, _ := g.Explain(long(1<<32), time.Second); d.Slot == home {
			t.Errorf("%+v", d)
		}
	})
	t.Run("no keys, no home", func(t *testing.T) {
		f := stranger(1, names...)
		if d := send(f, Request{Bytes: 1 << 20, Pinned: -1}); d.Left != 0 || d.Slot < 0 {
			t.Errorf("%+v", d)
		}
	})
}

// Others' requests count as answers that run there.
func TestOthersAreInTheWay(t *testing.T) {
	p := Default()
	q := Question{Keys: 100, Blocks: 100, Tokens: 6400, Output: 300, Shared: true}
	cs := []Candidate{{Slot: 0, Uncached: 6400, Others: 10, Served: 8, Measured: true, Home: 9}, {Slot: 1, Uncached: 6400, Measured: true, Home: 1}}
	pricedSpread(choice{&p, q, newRand(1)}, cs)
	alone := []Candidate{{Slot: 0, Uncached: 6400, Requests: 10, Decoding: 8}, {Slot: 1, Uncached: 6400}}
	q.Shared = false
	pricedSpread(choice{&p, q, newRand(1)}, alone)
	if cs[0].Cost != alone[0].Cost || cs[1].Cost != alone[1].Cost || cs[0].Cost <= cs[1].Cost {
		t.Errorf("costs %v and %v of others, %v and %v of own", cs[0].Cost, cs[1].Cost, alone[0].Cost, alone[1].Cost)
	}
}
