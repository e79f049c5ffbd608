package decide

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/load"
)

func TestTauOfTheSeed(t *testing.T) {
	p := Default()
	p.PeakPrefill, p.TTFTTolerance = 8192/0.40, 14*time.Second
	if p.Tau() != 286720 {
		t.Fatalf("tau %d, want 286720", p.Tau())
	}
	if p := Default(); p.Tau() != 286704 { // 15928 x 18, what llm-d ships
		t.Fatalf("default tau %d, want 286704", p.Tau())
	}
}

func TestWorthOfAMatchOfTheSeed(t *testing.T) {
	p := Default()
	for blocks, want := range map[int]float64{40: 0.128, 400: 1.28, 0: 0} {
		if got := p.Worth(blocks); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d blocks are worth %v queued requests, want %v", blocks, got, want)
		}
	}
}

// side is a candidate in short: what it holds of 100 blocks and how busy it is.
type side struct {
	run      int
	tokens   int64
	requests int
	queue    int // < 0 = unmeasured
	decoding int
}

func candidates(sides []side) []Candidate {
	var cs []Candidate
	for i, s := range sides {
		cs = append(cs, Candidate{
			Slot: i, Run: s.run, Blocks: s.run, Uncached: int64(6400 - 64*s.run),
			Tokens: s.tokens, Requests: s.requests, Decoding: s.decoding,
			Queue: max(s.queue, 0), Measured: s.queue >= 0,
		})
	}
	return cs
}

var hundred = Question{Keys: 100, Blocks: 100, Tokens: 6400, Output: 300, Last: -1}

func TestEveryOutcomeOfEveryPolicy(t *testing.T) {
	tau := Default()
	limit := tau.Tau()
	for _, c := range []struct {
		name   string
		policy Policy
		change func(*Params, *Question)
		sides  []side
		slots  string // that may be chosen
		want   Outcome
		why    Reason
	}{
		{"warm", StickyUntilSaturated, nil, []side{{run: 100, tokens: 5000}, {}}, "0", Sticky, ReasonNone},
		{"80 percent", StickyUntilSaturated, nil, []side{{}, {run: 80, tokens: 5000}}, "1", Sticky, ReasonNone},
		{"under 80 percent", StickyUntilSaturated, nil, []side{{}, {run: 79, tokens: 9000}}, "0", NoMatch, ReasonNone},
		{"all that qualify, less to prefill", StickyUntilSaturated, nil, []side{{run: 85, tokens: 10}, {run: 100, tokens: 10}, {}}, "1", Sticky, ReasonNone},
		{"all that qualify, less in flight", StickyUntilSaturated, nil, []side{{run: 85, tokens: 10}, {run: 100, tokens: 4000}, {}}, "0", Sticky, ReasonNone},
		{"at tau", StickyUntilSaturated, nil, []side{{run: 100, tokens: limit}, {}}, "0", Sticky, ReasonNone},
		{"over tau", StickyUntilSaturated, nil, []side{{run: 100, tokens: limit + 1}, {}, {tokens: 1}}, "1", LoadOverride, ReasonSaturated},
		{"fleet behind, gap", StickyUntilSaturated, nil, []side{{run: 100, tokens: 2*limit + 7}, {tokens: limit + 7}}, "0", Sticky, ReasonNone},
		{"fleet behind, absolute", StickyUntilSaturated, func(p *Params, _ *Question) { p.TauCompare = Absolute }, []side{{run: 100, tokens: 2 * limit}, {tokens: limit}}, "1", LoadOverride, ReasonSaturated},
		{"absolute at tau", StickyUntilSaturated, func(p *Params, _ *Question) { p.TauCompare = Absolute }, []side{{run: 100, tokens: limit}, {}}, "0", Sticky, ReasonNone},
		{"released to the sticky one", StickyUntilSaturated, func(p *Params, _ *Question) { p.TauCompare = Absolute }, []side{{run: 100, tokens: limit + 1}, {tokens: limit + 1}}, "0", LoadOverride, ReasonSaturated},
		{"one idle warm one holds the gate", StickyUntilSaturated, nil, []side{{run: 100, tokens: 9 * limit}, {run: 100}, {}}, "1", Sticky, ReasonNone},
		{"nobody cold", StickyUntilSaturated, nil, []side{{run: 100, tokens: 9 * limit}, {run: 100, tokens: 8 * limit}}, "1", Sticky, ReasonNone},
		{"sticky side unknown", StickyUntilSaturated, nil, []side{{run: 100, tokens: -1}, {}}, "0", Sticky, ReasonMissingSignal},
		{"other side unknown", StickyUntilSaturated, nil, []side{{run: 100, tokens: 9 * limit}, {tokens: -1}}, "0", Sticky, ReasonMissingSignal},
		{"active requests", StickyUntilSaturated, func(p *Params, _ *Question) { p.Load = ActiveRequests }, []side{{run: 100, requests: 9}, {run: 80, requests: 8}, {}}, "1", Sticky, ReasonNone},
		{"cold", StickyUntilSaturated, nil, []side{{tokens: 1}, {}, {}}, "12", NoMatch, ReasonNone},
		{"three blocks", StickyUntilSaturated, func(_ *Params, q *Question) { q.Keys, q.Blocks = 3, 3 }, []side{{run: 3, tokens: 9000}, {}}, "1", NoMatch, ReasonNone},
		{"four blocks", StickyUntilSaturated, func(_ *Params, q *Question) { q.Keys, q.Blocks = 4, 4 }, []side{{run: 4, tokens: 9000}, {}}, "0", Sticky, ReasonNone},
		{"no keys", StickyUntilSaturated, func(_ *Params, q *Question) { q.Keys = 0 }, []side{{tokens: 1}, {}}, "1", NotApplicable, ReasonNoKeys},
		{"explorer", StickyUntilSaturated, func(p *Params, _ *Question) { p.Exploration = 1 }, []side{{run: 100, tokens: 9000}, {}}, "1", Exploration, ReasonNone},

		{"32 blocks are enough", QueuePriced, nil, []side{{run: 32}, {}}, "0", Sticky, ReasonNone},
		{"31 are not", QueuePriced, nil, []side{{run: 31, queue: 1}, {}}, "1", NoMatch, ReasonNone},
		{"32 are not enough elsewhere", StickyUntilSaturated, nil, []side{{run: 32, tokens: 9000}, {}}, "1", NoMatch, ReasonNone},
		{"only the deepest", QueuePriced, nil, []side{{run: 99, queue: 0}, {run: 100, queue: 0}, {queue: 0}}, "1", Sticky, ReasonNone},
		{"a tenth of a request", QueuePriced, nil, []side{{run: 40, queue: 1}, {queue: 1}}, "0", Sticky, ReasonNone},
		{"deeper than it is worth", QueuePriced, nil, []side{{run: 100, queue: 1}, {queue: 0}}, "1", LoadOverride, ReasonSaturated},
		{"400 blocks are worth a queued request", QueuePriced, func(_ *Params, q *Question) { q.Keys, q.Blocks = 400, 400 }, []side{{run: 400, queue: 1}, {queue: 0}}, "0", Sticky, ReasonNone},
		{"but not two", QueuePriced, func(_ *Params, q *Question) { q.Keys, q.Blocks = 400, 400 }, []side{{run: 400, queue: 2}, {queue: 0}}, "1", LoadOverride, ReasonSaturated},
		{"unmeasured gives way", QueuePriced, nil, []side{{run: 100, queue: -1}, {queue: 50}}, "1", LoadOverride, ReasonUnmeasured},
		{"unmeasured others", QueuePriced, nil, []side{{run: 100, queue: 50}, {queue: -1}}, "0", Sticky, ReasonNone},
		{"nothing measured", QueuePriced, nil, []side{{run: 100, queue: -1}, {queue: -1}}, "0", Sticky, ReasonMissingSignal},
		{"unmeasured sorts last", QueuePriced, nil, []side{{queue: -1}, {queue: 3}, {queue: 4}}, "1", NoMatch, ReasonNone},
		{"no keys", QueuePriced, func(_ *Params, q *Question) { q.Keys = 0 }, []side{{queue: 2}, {queue: 1}}, "1", NotApplicable, ReasonNoKeys},
		{"explorer", QueuePriced, func(p *Params, _ *Question) { p.Exploration = 1 }, []side{{run: 100, queue: 1}, {}}, "1", Exploration, ReasonNone},

		// 6400 x (1 + 2) = 19200 for the fill at an idle backend.
		{"gap under the price", Priced, nil, []side{{run: 100, tokens: 19199}, {}}, "0", Sticky, ReasonNone},
		{"gap at the price", Priced, nil, []side{{run: 100, tokens: 19200}, {}}, "01", 255, 255},
		{"gap over the price", Priced, nil, []side{{run: 100, tokens: 19201}, {}}, "1", LoadOverride, ReasonCheaper},
		{"running answers raise the price", Priced, nil, []side{{run: 100, tokens: 19201, requests: 1}, {requests: 1, decoding: 1}}, "0", Sticky, ReasonNone},
		{"by a capped number", Priced, nil, []side{{run: 100, tokens: 6400*19 + 1, requests: 90}, {requests: 90, decoding: 90}}, "1", LoadOverride, ReasonCheaper},
		{"active requests move it", Priced, nil, []side{{run: 100, requests: 33}, {}}, "1", LoadOverride, ReasonCheaper}, // 2 x 300 x 33 = 19800
		{"cold", Priced, nil, []side{{}, {requests: 1}}, "0", NoMatch, ReasonNone},
		{"no match under four blocks", Priced, nil, []side{{run: 3}, {}}, "0", NoMatch, ReasonNone},
		{"no keys", Priced, func(_ *Params, q *Question) { q.Keys = 0 }, []side{{tokens: 1}, {}}, "1", NotApplicable, ReasonNoKeys},
		{"does not explore", Priced, func(p *Params, _ *Question) { p.Exploration = 1 }, []side{{run: 100}, {}}, "0", Sticky, ReasonNone},

		// As priced while somebody holds all of it; what nobody holds stalls two answers at most.
		{"gap under the price", PricedSpread, nil, []side{{run: 100, tokens: 19199}, {}}, "0", Sticky, ReasonNone},
		{"gap at the price", PricedSpread, nil, []side{{run: 100, tokens: 19200}, {}}, "01", 255, 255},
		{"gap over the price", PricedSpread, nil, []side{{run: 100, tokens: 19201}, {}}, "1", LoadOverride, ReasonCheaper},
		{"by a capped number", PricedSpread, nil, []side{{run: 100, tokens: 6400*19 + 1, requests: 90}, {requests: 90, decoding: 90}}, "1", LoadOverride, ReasonCheaper},
		{"cold, two answers and nine", PricedSpread, nil, []side{{requests: 2, decoding: 2, tokens: 7919}, {requests: 9, decoding: 9}}, "0", NoMatch, ReasonNone}, // 4 x 300 x 7 = 8400, less 480 that are nothing
		{"cold, nine answers and less in flight", PricedSpread, nil, []side{{requests: 2, decoding: 2, tokens: 8401}, {requests: 9, decoding: 9}}, "1", NoMatch, ReasonNone},
		{"no match under four blocks", PricedSpread, nil, []side{{run: 3}, {}}, "0", NoMatch, ReasonNone},
		{"unknown load", PricedSpread, nil, []side{{run: 100, tokens: -1}, {}}, "0", Sticky, ReasonNone},
		{"no keys", PricedSpread, func(_ *Params, q *Question) { q.Keys = 0 }, []side{{tokens: 1}, {}}, "1", NotApplicable, ReasonNoKeys},
		{"does not explore", PricedSpread, func(p *Params, _ *Question) { p.Exploration = 1 }, []side{{run: 100}, {}}, "0", Sticky, ReasonNone},

		{"whatever the load", AlwaysSticky, nil, []side{{run: 80, tokens: 99 * limit}, {}}, "0", Sticky, ReasonNone},
		{"cold", AlwaysSticky, nil, []side{{tokens: 1}, {}}, "1", NoMatch, ReasonNone},
		{"no keys", AlwaysSticky, func(_ *Params, q *Question) { q.Keys = 0 }, []side{{tokens: 1}, {}}, "1", NotApplicable, ReasonNoKeys},
		{"explorer", AlwaysSticky, func(p *Params, _ *Question) { p.Exploration = 1 }, []side{{run: 100, tokens: 9000}, {}}, "1", Exploration, ReasonNone},

		{"does not look", LeastLoad, nil, []side{{run: 100, tokens: 1}, {}}, "1", NotApplicable, ReasonPolicy},
		{"requests", LeastLoad, func(p *Params, _ *Question) { p.Load = ActiveRequests }, []side{{run: 100, requests: 1}, {tokens: 99}}, "1", NotApplicable, ReasonPolicy},

		{"first turn", RoundRobin, nil, []side{{run: 100}, {}, {}}, "012", NotApplicable, ReasonPolicy},
		{"next turn", RoundRobin, func(_ *Params, q *Question) { q.Last = 1 }, []side{{run: 100}, {}, {}}, "2", NotApplicable, ReasonPolicy},
		{"around", RoundRobin, func(_ *Params, q *Question) { q.Last = 2 }, []side{{run: 100}, {}, {}}, "0", NotApplicable, ReasonPolicy},

		{"prefix weighs most", WeightedBlend, nil, []side{{run: 100, queue: 9}, {queue: 0}}, "0", Sticky, ReasonNone},
		{"but not alone", WeightedBlend, nil, []side{{run: 60, queue: 9}, {queue: 0}}, "1", LoadOverride, ReasonCheaper},
		{"cold", WeightedBlend, nil, []side{{queue: 9}, {queue: 0}}, "1", NoMatch, ReasonNone},
		{"no keys", WeightedBlend, func(_ *Params, q *Question) { q.Keys = 0 }, []side{{tokens: 1}, {}}, "1", NotApplicable, ReasonNoKeys},
	} {
		t.Run(c.policy.String()+"/"+c.name, func(t *testing.T) {
			p, q := Default(), hundred
			p.Policy, p.Exploration = c.policy, 0
			if c.change != nil {
				c.change(&p, &q)
			}
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			rnd := rand.New(rand.NewPCG(1, 1))
			seen := map[string]bool{}
			for range 60 {
				cs := candidates(c.sides)
				d := Decide(&p, &q, cs, rnd)
				slot := string(rune('0' + d.Slot))
				if !strings.Contains(c.slots, slot) || c.want != 255 && (d.Outcome != c.want || d.Reason != c.why) {
					t.Fatalf("%+v, want slot %s, %v, %v; from %+v", d, c.slots, c.want, c.why, cs)
				}
				if d.Policy != c.policy || d.Keys != q.Keys || d.PromptTokens != q.Tokens || d.Run != c.sides[d.Slot].run {
					t.Fatalf("decision does not tell the question: %+v", d)
				}
				seen[slot] = true
			}
			if len(seen) != len(c.slots) {
				t.Fatalf("ties: only %v of %s were ever chosen", seen, c.slots)
			}
		})
	}
}

func TestBlendSendsColdRequestsWhereTheLatestIsOldest(t *testing.T) {
	p, q := Default(), hundred
	p.Policy = WeightedBlend
	cs := candidates([]side{{}, {}, {}})
	cs[0].LastCold, cs[1].LastCold, cs[2].LastCold = 7, 5, 6
	if d := Decide(&p, &q, cs, rand.New(rand.NewPCG(1, 1))); d.Slot != 1 {
		t.Fatalf("%+v", d)
	}
	cs = candidates([]side{{}, {}, {}})
	cs[0].LastCold, cs[1].LastCold, cs[2].LastCold = 7, 5, 6
	cs[2].KVUse, cs[2].HasKV = 0.1, true
	if d := Decide(&p, &q, cs, rand.New(rand.NewPCG(1, 1))); d.Slot != 2 {
		t.Fatalf("free memory does not count: %+v", d)
	}
}

func TestWhoIsACandidate(t *testing.T) {
	const ok, drain, out, probing = load.Admitted, load.Draining, load.Ejected, load.Probing
	for _, c := range []struct {
		name     string
		refusals []load.Refusal
		tried    []int
		erring   []int
		slot     int
		want     Outcome
		why      Reason
	}{
		{"nobody serves it", nil, nil, nil, -1, None, ReasonUnknownModel},
		{"lone", []load.Refusal{ok}, nil, nil, 0, Lone, ReasonNone},
		{"the other is out", []load.Refusal{out, ok}, nil, nil, 1, Lone, ReasonNone},
		{"the other was tried", []load.Refusal{ok, ok}, []int{0}, nil, 1, Lone, ReasonNone},
		{"lone and ejected", []load.Refusal{out}, nil, nil, 0, Lone, ReasonEjectedLone},
		{"lone and probing", []load.Refusal{probing}, nil, nil, 0, Lone, ReasonEjectedLone},
		{"ejected beside a draining one", []load.Refusal{drain, out}, nil, nil, 1, Lone, ReasonEjectedLone},
		{"lone and ejected and tried", []load.Refusal{out}, []int{0}, nil, -1, None, ReasonTried},
		{"lone and tried", []load.Refusal{ok}, []int{0}, nil, -1, None, ReasonTried},
		{"lone and draining", []load.Refusal{drain}, nil, nil, -1, None, ReasonNotAdmitted},
		{"both ejected", []load.Refusal{out, out}, nil, nil, -1, None, ReasonNotAdmitted},
		{"all for their errors", []load.Refusal{out, out, probing}, nil, []int{0, 1, 2}, 1, Lone, ReasonEjectedAll},
		{"some for their errors", []load.Refusal{out, out, out}, nil, []int{2}, 2, Lone, ReasonEjectedAll},
		{"errors beside one that admits", []load.Refusal{out, out, ok}, nil, []int{0, 1}, 2, Lone, ReasonNone},
		{"errors beside one that admits and was tried", []load.Refusal{out, ok}, []int{1}, []int{0}, -1, None, ReasonTried},
		{"errors and tried", []load.Refusal{out, out}, []int{0}, []int{0}, -1, None, ReasonTried},
		{"one tried, one ejected", []load.Refusal{ok, out}, []int{0}, nil, -1, None, ReasonTried},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, q := Default(), hundred
			var cs []Candidate
			for i, r := range c.refusals {
				cs = append(cs, Candidate{Slot: i, Refusal: r, Run: 100, Blocks: 100, Requests: 5 - i%2})
			}
			for _, s := range c.erring {
				cs[s].Erring = true
			}
			for _, s := range c.tried {
				cs[s].Tried = true
			}
			d := Decide(&p, &q, cs, rand.New(rand.NewPCG(1, 1)))
			if d.Slot != c.slot || d.Outcome != c.want || d.Reason != c.why {
				t.Fatalf("%+v, want slot %d, %v, %v", d, c.slot, c.want, c.why)
			}
		})
	}
}

func TestRefusedCandidatesAreNeverSticky(t *testing.T) {
	p, q := Default(), hundred
	p.Exploration = 0
	cs := candidates([]side{{run: 100}, {}, {}})
	cs[0].Refusal = load.Ejected
	for range 50 {
		d := Decide(&p, &q, cs, rand.New(rand.NewPCG(1, 1)))
		if d.Slot == 0 || d.Outcome != NoMatch {
			t.Fatalf("%+v", d)
		}
	}
}

func TestShareOfExplorers(t *testing.T) {
	p, q := Default(), hundred
	rnd := rand.New(rand.NewPCG(5, 5))
	n := 0
	for range 100_000 {
		if Decide(&p, &q, candidates([]side{{run: 100}, {}}), rnd).Outcome == Exploration {
			n++
		}
	}
	if n < 1800 || n > 2200 {
		t.Fatalf("%d of 100000 explored, want about 2000", n)
	}
}

func TestNamesRoundTrip(t *testing.T) {
	for p := range Policy(NumPolicies) {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	for l := range Load(numLoads) {
		if got, err := ParseLoad(l.String()); err != nil || got != l {
			t.Errorf("%v: %v, %v", l, got, err)
		}
	}
	for c := range Compare(numCompares) {
		if got, err := ParseCompare(c.String()); err != nil || got != c {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	for c := range CountPending(numCountPendings) {
		if got, err := ParseCountPending(c.String()); err != nil || got != c {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	labels := map[string]bool{}
	for o := range Outcome(NumOutcomes) {
		labels[o.String()] = true
	}
	for r := range Reason(NumReasons) {
		labels["reason "+r.String()] = true
	}
	for r := range load.Refusal(load.NumRefusals) {
		labels["refusal "+r.String()] = true
	}
	if len(labels) != NumOutcomes+NumReasons+load.NumRefusals {
		t.Fatalf("labels repeat: %v", labels)
	}
	if _, err := ParsePolicy("sticky"); err == nil || !strings.HasPrefix(err.Error(), "routing.policy must be one of sticky-until-saturated, ") {
		t.Fatalf("%v", err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		change func(*Params)
		want   string
	}{
		{func(p *Params) { p.Policy = 99 }, "routing.policy must"},
		{func(p *Params) { p.Load = 9 }, "routing.load must"},
		{func(p *Params) { p.TauCompare = 9 }, "routing.tau_compare must"},
		{func(p *Params) { p.CountPending = 9 }, "prefix_affinity.count_pending must"},
		{func(p *Params) { p.PeakPrefill = 0 }, "routing.peak_prefill_tokens_per_second must"},
		{func(p *Params) { p.PeakPrefill = math.Inf(1) }, "routing.peak_prefill_tokens_per_second must"},
		{func(p *Params) { p.TTFTTolerance = -1 }, "routing.ttft_tolerance must"},
		{func(p *Params) { p.PeakPrefill = 1e30 }, "routing.peak_prefill_tokens_per_second x routing.ttft_tolerance"},
		{func(p *Params) { p.Threshold = 0 }, "prefix_affinity.threshold must be in (0, 1], got 0"},
		{func(p *Params) { p.Threshold = 1.01 }, "prefix_affinity.threshold must be in (0, 1], got 1.01"},
		{func(p *Params) { p.Threshold = nan }, "prefix_affinity.threshold must"},
		{func(p *Params) { p.MinBlocks = 0 }, "prefix_affinity.min_blocks must"},
		{func(p *Params) { p.EnoughBlocks = 3 }, "prefix_affinity.enough_blocks must"},
		{func(p *Params) { p.Exploration = -0.1 }, "prefix_affinity.exploration must"},
		{func(p *Params) { p.Exploration = nan }, "prefix_affinity.exploration must"},
		{func(p *Params) { p.PrefillRate = 0 }, "prefix_affinity.prefill_tokens_per_second must"},
		{func(p *Params) { p.QueuedRequestSeconds = nan }, "prefix_affinity.queued_request_seconds must"},
		{func(p *Params) { p.Kappa = -1 }, "routing.priced.kappa must"},
		{func(p *Params) { p.Cap = nan }, "routing.priced.cap must"},
		{func(p *Params) { p.Delta = math.Inf(1) }, "routing.priced.delta must"},
	} {
		p := Default()
		c.change(&p)
		if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if err := index.Default().Validate(); err != nil {
		t.Error(err)
	}
}
