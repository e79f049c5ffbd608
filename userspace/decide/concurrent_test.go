package decide

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

func equalStates(a, b []BackendState) bool { return reflect.DeepEqual(a, b) }

// Thousands of requests that end in every way, while backends come, go, restart
// and fail and settings change: in the end nothing is in flight anywhere.
func TestEveryWayOutReleasesOnce(t *testing.T) {
	f := newFleet(t, 6, func(p *Params) { p.Exploration = 0.1 })
	p := f.Params()
	requests, goroutines := 4, 3000
	if testing.Short() {
		goroutines = 500
	}
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(uint64(g), 9))
			for range requests {
				oneLife(t, f, rnd)
			}
		}()
	}
	for g := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(uint64(g), 10))
			for range 300 {
				disturb(f, p, rnd)
			}
		}()
	}
	wg.Wait()
	if n := f.Counts().InFlight; n != 0 {
		t.Fatalf("%d tickets in flight", n)
	}
	if n := f.demand.count; n != 0 {
		t.Fatalf("%d keys in flight", n)
	}
	for _, s := range f.Snapshot(0, nil) {
		if s.InFlight != 0 || s.Decoding != 0 || s.Uncached != 0 {
			t.Fatalf("in flight at the end: %+v", s)
		}
	}
}

func oneLife(t *testing.T, f *Fleet, rnd *rand.Rand) {
	now := time.Duration(rnd.IntN(1000)) * time.Second / 10
	r := prompt(key.Key(100*rnd.IntN(5)), rnd.IntN(60))
	r.Stream = rnd.IntN(2) == 0
	k, d := f.Route(r, now)
	if d.Slot >= 0 && rnd.IntN(5) == 0 { // a retry
		f.ConnectFailed(d.Slot, now)
		r.Tried, r.Moves = []int{d.Slot}, k
		old := k
		k, d = f.Route(r, now)
		defer old.Done(now)
	}
	defer k.Done(now)
	for range rnd.IntN(7) {
		switch rnd.IntN(8) {
		case 0:
			k.FirstToken(now)
		case 1:
			k.Confirm(now)
		case 2:
			k.Refused(now)
		case 3:
			k.Withdraw(now)
		case 4:
			k.Usage(rnd.IntN(1000), 0, rnd.IntN(500))
		case 5:
			k.Done(now)
		case 6:
			f.Status(d.Slot, 200+100*rnd.IntN(4), now)
		case 7:
			for _, s := range f.Snapshot(now, nil) {
				if s.InFlight < 0 || s.Decoding < 0 || s.Uncached < 0 || s.Decoding > s.InFlight {
					t.Errorf("below zero: %+v", s)
				}
			}
		}
	}
}

func disturb(f *Fleet, p Params, rnd *rand.Rand) {
	slot, now := rnd.IntN(7), time.Duration(rnd.IntN(1000))*time.Second/10
	switch rnd.IntN(9) {
	case 0:
		f.Remove(slot)
		f.Add(Spec{Name: "again", Models: []string{"m"}})
	case 1:
		f.Observe(slot, load.Sample{Waiting: rnd.IntN(5), HasQueue: true, CapacityTok: 6400, StartTime: float64(rnd.IntN(3)), HasStartTime: true}, now)
	case 2:
		f.PollFailed(slot, now)
	case 3:
		f.Drain(slot, rnd.IntN(2) == 0)
	case 4:
		f.SetModels(slot, []string{"m", "n"}[:rnd.IntN(3)])
	case 5:
		p.Policy = Policy(rnd.IntN(NumPolicies))
		f.SetParams(p)
	case 6:
		ip := index.Default()
		ip.Capacity = 1 + rnd.IntN(500)
		f.SetIndexParams(ip)
	case 7:
		f.SetLoadParams(load.Default())
	case 8:
		f.Explain(prompt(key.Key(100*rnd.IntN(5)), 60), now)
	}
}

func TestTicketsOfARemovedBackendDoNotTouchTheNextOwnerOfItsSlot(t *testing.T) {
	f := newFleet(t, 1, nil)
	old, _ := f.Route(prompt(1, 50), 0)
	half, _ := f.Route(prompt(1, 60), 0)
	half.FirstToken(0)
	f.Remove(0)
	if slot := f.Add(Spec{Name: "new", Models: []string{"m"}}); slot != 0 {
		t.Fatalf("slot %d", slot)
	}
	mine, _ := f.Route(prompt(5000, 10), 0)
	mine.Confirm(0)
	for _, k := range []Ticket{old, half} {
		k.FirstToken(0)
		k.Confirm(0)
		k.Refused(0)
		k.Usage(1, 1, 1)
		k.Done(0)
	}
	if s := state(t, f, 0, 0); s.Spec.Name != "new" || s.InFlight != 1 || s.Uncached != 640 || s.Decoding != 0 || s.IndexEntries != 10 || s.UsageTokens != 0 {
		t.Fatalf("%+v", s)
	}
	mine.Done(0)
	if s := state(t, f, 0, 0); s.InFlight != 0 || s.Uncached != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestStaleTicketDoesNotEndItsSuccessor(t *testing.T) {
	f := newFleet(t, 1, nil)
	old, _ := f.Route(prompt(1, 50), 0)
	old.Done(0)
	next, _ := f.Route(prompt(1, 50), 0) // reuses the state of old
	if old.fl != next.fl {
		t.Fatal("the state was not reused: this test shows nothing")
	}
	old.Done(0)
	old.FirstToken(0)
	old.Refused(0)
	if s := state(t, f, 0, 0); s.InFlight != 1 || s.Uncached == 0 || s.IndexEntries != 50 {
		t.Fatalf("%+v", s)
	}
	other := newFleet(t, 1, nil)
	other.Route(Request{Pinned: -1, Moves: next}, 0) // a ticket of another fleet
	if s := state(t, f, 0, 0); s.InFlight != 1 {
		t.Fatalf("%+v", s)
	}
	next.Done(0)
	Ticket{}.Done(0)
	Ticket{}.Confirm(0)
	Ticket{}.FirstToken(0)
	Ticket{}.Usage(1, 1, 1)
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, policy := range []Policy{StickyUntilSaturated, PricedSpread} {
		t.Run(policy.String(), func(t *testing.T) { steadyState(t, policy) })
	}
}

func steadyState(t *testing.T, policy Policy) {
	f := newFleet(t, 64, func(p *Params) { p.Policy = policy })
	rnd := rand.New(rand.NewPCG(8, 8))
	var rs []Request
	for range 60 {
		rs = append(rs, randomPrompt(rnd, key.MaxKeys))
	}
	f.SetIndexParams(index.Params{Capacity: 2000, TiersFactor: 1, TTL: time.Minute, PendingTTL: time.Second})
	i := 0
	life := func() {
		now := time.Duration(i) * 20 * time.Millisecond
		k, _ := f.Route(rs[i%len(rs)], now)
		k.FirstToken(now)
		k.Confirm(now)
		k.Usage(512*64, 0, 100)
		k.Done(now)
		f.Observe(i%64, load.Sample{Waiting: i % 5, HasQueue: true}, now)
		i++
	}
	for range 3_200 {
		life()
	}
	if n := testing.AllocsPerRun(500, life); n != 0 {
		t.Fatalf("%v allocations per request", n)
	}
}
