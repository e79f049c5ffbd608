package decide

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// begun makes Question.Begun of steps: so many keys, begun by so many requests.
func begun(steps ...int) (b []int32) {
	for i := 0; i < len(steps); i += 2 {
		for range steps[i] {
			b = append(b, int32(steps[i+1]))
		}
	}
	return b
}

// Prompts are 100 blocks of 64 tokens; an idle cold backend costs
// 6,400 x (1 + 2) = 19,200 without anything owed, evicted or running.
func TestTermsOfPricedSpread(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name   string
		change func(q *Question, cs []Candidate)
		sides  []side
		want   []float64 // costs
	}{
		{"half ought to be held twice",
			// 4 backends x 0.55 = 2 copies of the first 50 blocks, of which 2 hold the
			// first 20; 4 x 0.16 < 1 of the others. So 30 blocks are owed.
			func(q *Question, _ []Candidate) { q.InFlight, q.Begun = 1000, begun(50, 600, 50, 200) },
			[]side{{run: 100}, {}, {run: 20}, {}},
			[]float64{0, 6400 + 4480*2, 5120 + 3200*2, 6400 + 4480*2}},
		{"and is",
			func(q *Question, _ []Candidate) { q.InFlight, q.Begun = 1000, begun(50, 600, 50, 200) },
			[]side{{run: 100}, {run: 50}, {}, {}}, []float64{0, 9600, 19200, 19200}},
		{"half of a few may be chance", // (5 - 3 x 1.58) / 10 for certain
			func(q *Question, _ []Candidate) { q.InFlight, q.Begun = 10, begun(50, 5, 50, 2) },
			[]side{{run: 100}, {}, {run: 20}, {}}, []float64{0, 19200, 15360, 19200}},
		{"the holders fall along the prompt with the share",
			// Blocks 0-19: 3 hold of 4 wanted, a 4th is owed; 20-59: 2 of 3; 60-99: 1 of 1.
			func(q *Question, _ []Candidate) { q.InFlight, q.Begun = 1000, begun(20, 1000, 40, 800, 40, 300) },
			[]side{{run: 100}, {run: 60}, {run: 20}, {}},
			[]float64{0, 2560 * 3, 5120 + 2560*2, 6400 + 2560*2}},
		{"of keys that reach further than blocks",
			func(q *Question, _ []Candidate) {
				q.Keys, q.InFlight, q.Begun, q.Cover = 2, 1, begun(1, 1), []int32{75, 100}
			},
			[]side{{run: 100}, {}}, []float64{0, 6400 + 1600*2}},
		{"more begin with it than are in flight: a backend left",
			func(q *Question, _ []Candidate) { q.InFlight, q.Begun = 2, begun(100, 9) },
			[]side{{run: 100}, {}}, []float64{0, 6400}},
		{"nothing in flight",
			func(q *Question, _ []Candidate) { q.Begun = begun(100, 3) },
			[]side{{run: 100}, {}}, []float64{0, 19200}},
		{"what nobody holds stalls two answers",
			// 1,600 must be filled anywhere: 1,600 x 2, the other 4,800 x 9. 4 x 300 per request.
			nil, []side{{run: 75, requests: 9, decoding: 9}, {requests: 9, decoding: 9}},
			[]float64{1600*3 + 1600*2 + 10800, 6400*3 + 1600*2 + 4800*9 + 10800}},
		{"up to a batch",
			func(q *Question, cs []Candidate) {
				for i := range cs {
					cs[i].Uncached = 20000
				}
			},
			[]side{{decoding: 10}, {decoding: 1}}, []float64{60000 + 8192*2 + 11808*10, 60000 + 20000}},
		{"what is owed does not stall either",
			func(q *Question, _ []Candidate) { q.InFlight, q.Begun = 2, begun(100, 2) },
			[]side{{decoding: 9}, {decoding: 9}}, []float64{6400, 6400}},
		{"live content is dearer to evict",
			func(q *Question, cs []Candidate) {
				q.Reuse = 5 * s
				cs[0].Evicts, cs[1].Evicts, cs[2].Evicts = true, true, true
				cs[1].Age, cs[2].Age = 20*s, 2000*s
				cs[3].Age = 1 * s // and evicts nothing
			},
			[]side{{}, {}, {}, {}}, []float64{6400 * 4, 6400 * (3 + 1/math.E), 19200, 19200}},
		{"a full cache stalls more, and its context slows", // 3/4 cap 16 / (1 - 1/2); 2 x 300 x 75,000/30,000
			func(q *Question, cs []Candidate) {
				cs[0].KVUse, cs[0].HasKV, cs[0].Held = 0.5, true, 75000
				cs[1].HasKV = true
			},
			[]side{{decoding: 40}, {decoding: 40}, {run: 100}},
			[]float64{6400*3 + 6400*24 + 1500, 6400*3 + 6400*12, 750}},
		{"one that does not say its KV use is like the others",
			func(q *Question, cs []Candidate) {
				cs[0].KVUse, cs[0].HasKV, cs[0].Held = 0.75, true, 150000
				cs[1].KVUse, cs[1].HasKV, cs[1].Held = 0.25, true, 75000
				cs[2].KVUse, cs[2].HasKV = 0.5, true // but not its size
			},
			[]side{{run: 100}, {}, {}, {decoding: 40}},
			[]float64{3000, 19200 + 1500, 19200 + 2250, 19200 + 6400*24 + 2250}},
		{"more than full",
			func(q *Question, cs []Candidate) { cs[0].KVUse, cs[0].HasKV = 1.5, true },
			[]side{{decoding: 2000}, {run: 100}}, []float64{19200 + 6400*1200, 0}},
		{"memory that will not be there", // 1.5 x 500; none; all of 1,000; the mean of these
			func(q *Question, cs []Candidate) {
				q.Needs = 1000
				for i, c := range []Candidate{{Held: 90000, Claimed: 9500}, {Held: 50000, Claimed: 40000}, {Held: 99000, Claimed: 200000}} {
					cs[i].Held, cs[i].Claimed = c.Held, c.Claimed
					cs[i].KVUse, cs[i].HasKV, cs[i].Capacity = float64(c.Held)/1e5, true, 100000
				}
				cs[3].Claimed = 300000
			},
			[]side{{run: 100}, {run: 100, decoding: 60}, {run: 100}, {run: 100}},
			[]float64{1800 + 750, 1000, 1980 + 1500, 4780./3 + 750}},
		{"unless the copy is owed",
			func(q *Question, cs []Candidate) {
				q.Reuse, q.InFlight, q.Begun = 5*s, 1, begun(100, 1)
				cs[1].Evicts = true
			},
			[]side{{run: 100}, {}}, []float64{0, 6400}},
		{"which short answers soon give back", // 10 tokens: a tenth of 1.5 x 1,000
			func(q *Question, cs []Candidate) {
				q.Needs, q.Output = 1000, 10
				for i := range cs {
					cs[i].HasKV, cs[i].Capacity = true, 100000
				}
				cs[0].Claimed = 100000
			},
			[]side{{run: 100}, {run: 100}}, []float64{150, 0}},
	} {
		p, q := Default(), hundred
		p.Policy, q.PerBlock = PricedSpread, 64
		cs := candidates(c.sides)
		if c.change != nil {
			c.change(&q, cs)
		}
		Decide(&p, &q, cs, rand.New(rand.NewPCG(1, 1)))
		for i, want := range c.want {
			if got := cs[i].Cost; math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: backend %d costs %v, want %v", c.name, i, got, want)
			}
		}
	}
}
