package decide

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// demand against a map: keys that collide, key 0, keys twice in a request.
func TestDemandAgainstMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var d demand
	want := map[key.Key]int32{}
	var flying [][]key.Key
	check := func(k key.Key) {
		if got := d.of(k); got != want[k] {
			t.Fatalf("%d requests begin with %x, want %d", got, uint64(k), want[k])
		}
	}
	grown := 0
	for step := range 4000 {
		if step%1000 < 500 {
			keys := make([]key.Key, rnd.IntN(80))
			for i := range keys {
				switch k := key.Key(rnd.Uint64()); rnd.IntN(4) {
				case 0:
					keys[i] = k % 100
				case 1: // the upper bits of the hash are equal: they share a home
					keys[i] = (k % 256) * 0xf1de83e19937733d
				default:
					keys[i] = k
				}
				want[keys[i]]++
			}
			d.add(keys)
			flying = append(flying, keys)
		} else if n := len(flying); n > 0 {
			i := rnd.IntN(n)
			d.remove(flying[i])
			for _, k := range flying[i] {
				if want[k]--; want[k] == 0 {
					delete(want, k)
				}
			}
			for _, k := range flying[i] {
				check(k)
			}
			flying = slices.Delete(flying, i, i+1)
		}
		if d.count != len(want) || d.count*8 > len(d.cells)*5 {
			t.Fatalf("%d keys in %d cells, want %d", d.count, len(d.cells), len(want))
		}
		if step%100 == 0 {
			for k := range want {
				check(k)
			}
		}
		check(key.Key(rnd.IntN(100)))
		grown = max(grown, len(d.cells))
	}
	if len(flying) != 0 || len(d.cells) != minDemand || grown == minDemand {
		t.Fatalf("%d in flight, %d cells, %d at most", len(flying), len(d.cells), grown)
	}
}

func spreading(p *Params) { p.Policy = PricedSpread }

func TestDemandIsReleasedOnEveryWayOut(t *testing.T) {
	for name, out := range map[string]func(f *Fleet, k Ticket){
		"done":      func(_ *Fleet, k Ticket) { k.Done(0) },
		"twice":     func(_ *Fleet, k Ticket) { k.Done(0); k.Done(0) },
		"first":     func(_ *Fleet, k Ticket) { k.FirstToken(0); k.Confirm(0); k.Done(0) },
		"refused":   func(_ *Fleet, k Ticket) { k.Refused(0); k.Done(0) },
		"withdrawn": func(_ *Fleet, k Ticket) { k.Withdraw(0); k.Done(0) },
		"gone":      func(f *Fleet, k Ticket) { f.Remove(0); k.Done(0) },
		"replaced": func(f *Fleet, k Ticket) {
			f.Remove(0)
			f.Add(Spec{Name: "new", Models: []string{"m"}})
			k.Done(0)
		},
		"restarted": func(f *Fleet, k Ticket) { f.index.Forget(0); k.Confirm(0); k.Done(0) },
		"other policy": func(f *Fleet, k Ticket) {
			p := f.Params()
			p.Policy = LeastLoad
			f.SetParams(p)
			k.Done(0)
		},
		"moved": func(f *Fleet, k Ticket) {
			r := prompt(1, 50)
			r.Moves = k
			again, _ := f.Route(r, 0)
			if n := f.demand.of(1); n != 2 {
				t.Errorf("%d after a move, want 2", n)
			}
			k.Done(0)
			again.Done(0)
		},
	} {
		f := newFleet(t, 1, spreading)
		stays, _ := f.Route(prompt(1, 20), 0)
		k, _ := f.Route(prompt(1, 50), 0)
		if a, b := f.demand.of(1), f.demand.of(50); a != 2 || b != 1 {
			t.Fatalf("%s: %d and %d in flight, want 2 and 1", name, a, b)
		}
		out(f, k)
		if a, b := f.demand.of(1), f.demand.of(50); a != 1 || b != 0 || f.demand.count != 20 {
			t.Errorf("%s: %d and %d in flight, %d keys, want 1, 0 and 20", name, a, b, f.demand.count)
		}
		stays.Done(0)
		if f.demand.count != 0 {
			t.Errorf("%s: %d keys left", name, f.demand.count)
		}
	}
}

func TestRequestsUnderAnotherPolicyCountNoKeys(t *testing.T) {
	f := newFleet(t, 2, nil)
	before, _ := f.Route(prompt(1, 50), 0)
	if f.demand.cells != nil {
		t.Fatal("demand has memory under a policy that does not ask for it")
	}
	p := f.Params()
	p.Policy = PricedSpread
	f.SetParams(p)
	after, _ := f.Route(prompt(1, 50), 0)
	before.Done(0)
	if n := f.demand.of(1); n != 1 {
		t.Fatalf("%d in flight, want 1", n)
	}
	after.Done(0)
	if f.demand.count != 0 {
		t.Fatalf("%d keys left", f.demand.count)
	}
}

// holders routes 24 requests that share 40 blocks and are all in flight, and
// returns how many of 8 backends hold the shared part in the end.
func holders(t *testing.T, policy Policy) (n int) {
	f := newFleet(t, 8, func(p *Params) { p.Policy = policy })
	for i := range 24 {
		r := prompt(1, 42)
		r.Keys[40], r.Keys[41] = key.Key(1000+2*i), key.Key(1001+2*i)
		k, _ := f.Route(r, time.Duration(i)*time.Second)
		k.FirstToken(time.Duration(i) * time.Second)
	}
	for _, s := range f.Snapshot(24*time.Second, nil) {
		if s.IndexEntries > 0 {
			n++
		}
	}
	return n
}

// Under priced a request more costs 2 x 300 tokens where it decodes, 64 x 2 in stalls,
// and the copy of 2,560 tokens 3 x as much; under priced-spread 4 x 300 and 1 x.
func TestPromptOfAllIsSpread(t *testing.T) {
	if a, b := holders(t, PricedSpread), holders(t, Priced); a < 2*b {
		t.Errorf("%d backends of 8 hold it under priced-spread, %d under priced; want twice as many", a, b)
	}
}

// A request claims the memory of what no other in flight begins with, at its
// backend until its first token.
func TestRequestsClaimWhatTheyDoNotShare(t *testing.T) {
	f := newFleet(t, 2, spreading)
	route := func(first key.Key, n, slot int) Ticket {
		r := prompt(first, n)
		r.Pinned = slot
		k, _ := f.Route(r, 0)
		return k
	}
	want := func(claims ...int64) {
		t.Helper()
		_, cs := f.Explain(prompt(1000, 1), 0)
		for slot, c := range claims {
			if cs[slot].Claimed != c {
				t.Errorf("%d tokens claimed at %d, want %d", cs[slot].Claimed, slot, c)
			}
		}
	}
	a := route(1, 20, 0)
	want(20*64, 0)
	b := route(1, 50, 0) // 30 blocks of its own
	want(50*64, 0)
	c := route(1, 50, 1) // none, wherever the others are
	want(50*64, 0)
	a.FirstToken(0)
	want(30*64, 0)
	b.Done(0)
	a.Done(0)
	want(0, 0)
	d := route(1, 60, 0)
	want(10*64, 0)
	c.FirstToken(0)
	d.Withdraw(0)
	d.Done(0)
	c.Done(0)
	want(0, 0)
	p := f.Params()
	p.Policy = Priced
	f.SetParams(p)
	route(1, 20, 0)
	want(0, 0)
}

func TestFillsAreToldWhatTheyEvict(t *testing.T) {
	f := newFleet(t, 3, spreading)
	f.SetIndexParams(index.Params{Capacity: 100, TiersFactor: 1, TTL: time.Hour, PendingTTL: time.Minute})
	f.Observe(0, load.Sample{CapacityTok: 16 * 100}, 0) // 25 blocks
	for slot, n := range []int{0: 20, 1: 90, 2: 10} {
		r := prompt(key.Key(1000*(slot+1)), n)
		r.Pinned = slot
		now := time.Second * time.Duration(2*slot+1)
		k, _ := f.Route(r, now)
		k.Confirm(now + time.Second)
		k.Done(0)
	}
	_, cs := f.Explain(prompt(5, 20), 20*time.Second)
	for slot, want := range []struct {
		evicts bool
		age    Instant
	}{{true, 19 * time.Second}, {true, 17 * time.Second}, {}} {
		if cs[slot].Evicts != want.evicts || cs[slot].Age != want.age {
			t.Errorf("backend %d: %v %v, want %v", slot, cs[slot].Evicts, cs[slot].Age, want)
		}
	}
	// What is used again after 17 s moves the mean from 10 s by a hundredth of 7 s.
	r := prompt(2000, 90)
	r.Pinned = 1
	f.Route(r, 20*time.Second)
	if want := 10070 * time.Millisecond; (f.reuse - want).Abs() > time.Millisecond {
		t.Errorf("mean age of reuse %v, want %v", f.reuse, want)
	}
}
