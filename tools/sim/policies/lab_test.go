package policies

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/load"
)

// decide's priced-spread is the lab's formula: on random traffic, booked alike,
// both put the same price on every backend.
func TestSpreadOfDecideIsTheLabs(t *testing.T) {
	formula := Lab{Kappa: 2, Cap: 16, Delta: 2, Age: 1, Spread: true, Batch: 8192, First: 2}
	var compared, shared, aged int
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		s := setup(2 + rnd.IntN(9))
		s.Perfect = true // marks never expire
		for i := range s.Capacity {
			s.Capacity[i] = 64 * (800 + 400*rnd.Int64N(3))
		}
		a := formula.Policy("lab").New(s).(*lab)
		b := newFleet(s, decide.PricedSpread, nil)
		for slot := range s.Backends {
			b.Observe(slot, load0, 0)
		}
		var flying []*traffic.Job
		tickets := map[*traffic.Job]decide.Ticket{}
		now := time.Duration(0)
		for i := range 900 {
			now += time.Duration(rnd.ExpFloat64() * 1e8)
			j := &traffic.Job{Index: i, Stream: true}
			j.Reset()
			j.Add(traffic.Segment{ID: 1000000 + uint64(i/150), Tokens: 64 * (200 - 40*rnd.IntN(3))})
			j.Add(traffic.Segment{ID: 10 + uint64(rnd.IntN(12)), Tokens: 64 * rnd.IntN(60)})
			j.Add(traffic.Segment{ID: 100 + uint64(i), Tokens: 64 * (1 + rnd.IntN(30))})
			j.Output = 1 + rnd.IntN(600)
			j.SetKeys(64)
			full := true
			for _, m := range a.memory {
				_, f := m.oldest(now)
				full = full && f
			}
			_, cs := b.Explain(b.request(j), now)
			j.Slot = a.Route(j, now)
			for slot, want := range a.cost {
				if !full {
					break // the lab's memory is full or not; decide asks whether this fill has room
				}
				compared++
				if got := cs[slot].Cost; math.Abs(got-want) > 1e-9*want+float64(s.Backends+1)*4 {
					t.Fatalf("seed %d, request %d, backend %d: %v, the lab %v; %+v", seed, i, slot, got, want, cs[slot])
				}
				if a.priced[slot] != a.fill[slot] {
					shared++
				}
				if cs[slot].Evicts && cs[slot].Age < 40*time.Second {
					aged++
				}
			}
			r := b.request(j)
			r.Pinned = j.Slot
			ticket, d := b.Fleet.Route(r, now)
			if d.Slot != j.Slot {
				t.Fatalf("%+v", d)
			}
			ticket.Confirm(now)
			tickets[j] = ticket
			flying = append(flying, j)
			for len(flying) > 30 || len(flying) > 0 && rnd.IntN(3) == 0 {
				n := rnd.IntN(len(flying))
				j := flying[n]
				if rnd.IntN(2) == 0 {
					a.FirstToken(j, now)
					tickets[j].FirstToken(now)
					continue
				}
				a.Done(j, now)
				tickets[j].Usage(0, 0, j.Output)
				tickets[j].Done(now)
				delete(tickets, j)
				flying[n] = flying[len(flying)-1]
				flying = flying[:len(flying)-1]
			}
		}
	}
	if compared < 20000 || shared < compared/50 || aged < compared/20 {
		t.Errorf("%d prices compared, %d with copies owed, %d with an age", compared, shared, aged)
	}
}

var load0 = load.Sample{}
