package decide

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// chosen is what is chosen of the candidates in many tries, by slot.
func chosen(t *testing.T, cs []Candidate) []int {
	t.Helper()
	p, q := Default(), hundred
	p.Policy, q.PerBlock = PricedSpread, 64
	rnd := rand.New(rand.NewPCG(7, 7))
	var slots []int
	for range 400 {
		d := Decide(&p, &q, slices.Clone(cs), rnd)
		if !slices.Contains(slots, d.Slot) {
			slots = append(slots, d.Slot)
		}
	}
	slices.Sort(slots)
	return slots
}

func TestWhereNoBackendHasAnAdvantage(t *testing.T) {
	out := func(c *Candidate) { c.Waiting, c.HasKV, c.KVUse = 3, true, 0.97 }
	for _, c := range []struct {
		name   string
		sides  []side
		change func(cs []Candidate)
		want   []int
	}{
		{"numbers differ by a fifth of the smallest", // of 40 that is 8
			[]side{{requests: 40, decoding: 40}, {requests: 48, decoding: 48}, {requests: 49, decoding: 49}}, nil, []int{0, 1}},
		{"few are kept equal",
			[]side{{requests: 4, decoding: 4}, {requests: 5, decoding: 5}}, nil, []int{0}},
		{"none are",
			[]side{{}, {requests: 1}}, nil, []int{0}},
		{"not behind more than a step", // 8 answers are 9,600
			[]side{{requests: 40}, {requests: 40, tokens: 8192}, {requests: 40, tokens: 8193}}, nil, []int{0, 1}},
		{"who holds more is asked as ever",
			[]side{{requests: 40, decoding: 40, run: 100}, {requests: 40, decoding: 40}}, nil, []int{0}},
		{"equal numbers where all hold all",
			[]side{{requests: 40, run: 100}, {requests: 47, run: 100}}, nil, []int{0, 1}},
		{"short of memory comes last whatever it costs",
			[]side{{}, {requests: 200, decoding: 200}}, func(cs []Candidate) { out(&cs[0]) }, []int{1}},
		{"all are short",
			[]side{{}, {requests: 200, decoding: 200}}, func(cs []Candidate) { out(&cs[0]); out(&cs[1]) }, []int{0}},
		{"a queue with memory left is none of memory",
			[]side{{}, {requests: 200, decoding: 200}}, func(cs []Candidate) { out(&cs[0]); cs[0].KVUse = 0.9 }, []int{0}},
		{"a full cache without a queue has room for the next",
			[]side{{}, {requests: 200, decoding: 200}}, func(cs []Candidate) { out(&cs[0]); cs[0].Waiting = 0 }, []int{0}},
		{"memory that nobody polled", []side{{}, {requests: 200, decoding: 200}}, func(cs []Candidate) { out(&cs[0]); cs[0].HasKV = false }, []int{0}},
		{"a fill of more than a step",
			[]side{{requests: 40}, {requests: 41}, {requests: 42}}, func(cs []Candidate) {
				for i := range cs {
					cs[i].Uncached = spreadBatch + 1
				}
			}, []int{0}},
	} {
		cs := candidates(c.sides)
		if c.change != nil {
			c.change(cs)
		}
		if got := chosen(t, cs); !slices.Equal(got, c.want) {
			t.Errorf("%s: chosen were %v, want %v", c.name, got, c.want)
		}
	}
}

// What is taken is named for what it is: it holds the longest run, or it does not.
func TestOutcomesOutOfStep(t *testing.T) {
	p, q := Default(), hundred
	p.Policy, q.PerBlock = PricedSpread, 64
	for _, c := range []struct {
		run  int
		want Outcome
	}{{100, Sticky}, {0, NoMatch}} {
		cs := candidates([]side{{run: c.run, requests: 40}, {run: c.run, requests: 42}})
		if d := Decide(&p, &q, cs, rand.New(rand.NewPCG(1, 1))); d.Outcome != c.want {
			t.Errorf("run %d: %v, want %v", c.run, d.Outcome, c.want)
		}
	}
}

// Against the rule as it is written: the cheapest of those with memory, or of all,
// and what costs no more than a fifth of its answers above.
func FuzzOutOfStep(f *testing.F) {
	f.Add(uint64(1))
	f.Add(uint64(1 << 40))
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		p, q := Default(), hundred
		p.Policy, q.PerBlock = PricedSpread, 64
		q.Output = float64(1 + rnd.IntN(4000))
		cs := make([]Candidate, 1+rnd.IntN(8))
		same := int64(rnd.IntN(9000))
		for i := range cs {
			e := &cs[i]
			e.Slot, e.Uncached = i, same
			e.Requests = rnd.IntN(60)
			e.Decoding, e.Tokens = rnd.IntN(e.Requests+1), int64(rnd.IntN(3))*5000
			e.Waiting, e.HasKV, e.KVUse = rnd.IntN(3), rnd.IntN(4) > 0, rnd.Float64()
		}
		d := Decide(&p, &q, cs, rnd)
		if len(cs) == 1 {
			return
		}
		priced := cs // Decide has left the costs there
		some, least := false, priced[0].Requests
		for i := range priced {
			some = some || !priced[i].short()
			least = min(least, priced[i].Requests)
		}
		cheapest := -1
		for i := range priced {
			if e := &priced[i]; (!some || !e.short()) && (cheapest < 0 || e.Cost < priced[cheapest].Cost) {
				cheapest = i
			}
		}
		if same > spreadBatch { // not for these
			cheapest = 0
			for i := range priced {
				if priced[i].Cost < priced[cheapest].Cost {
					cheapest = i
				}
			}
			if got := priced[slices.IndexFunc(priced, func(e Candidate) bool { return e.Slot == d.Slot })]; got.Cost > priced[cheapest].Cost {
				t.Fatalf("chosen %+v over %+v", got, priced[cheapest])
			}
			return
		}
		got := priced[slices.IndexFunc(priced, func(e Candidate) bool { return e.Slot == d.Slot })]
		slack := float64(least) / 5 * 2 * 2 * q.Output
		switch {
		case got.short() && some:
			t.Fatalf("chosen %+v, which is short of memory, of %+v", got, priced)
		case got.Cost > priced[cheapest].Cost+slack+1e-6:
			t.Fatalf("chosen %+v, the cheapest is %+v, slack %v", got, priced[cheapest], slack)
		case got.Tokens > spreadBatch && got.Cost > priced[cheapest].Cost:
			t.Fatalf("chosen %+v, behind more than a step, over %+v", got, priced[cheapest])
		}
	})
}
