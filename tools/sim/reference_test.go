package sim

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/quantile"
	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/tools/sim/traffic"
)

// reference is the toy once more, slow and obvious: no events, no queues, only
// for each request in the order of arrival the time when each server will be
// free, recomputed from the list of all requests so far.
func reference(rate float64, seconds, tau float64, seed uint64) (ttfts []float64, hit float64) {
	source := traffic.NewPoisson(traffic.Constant(rate), Instant(seconds*1e9), seed, traffic.SeedPrefixes().Draw(1))
	type served struct {
		server int
		end    Instant
		tokens float64
	}
	var all []served
	var recent [10][]uint64
	hits := 0
	j := &traffic.Job{}
	for source.Next() != traffic.Never {
		now := source.Next()
		j.Reset()
		source.Pop(j)
		var pending [10]float64
		var free [10]Instant
		kept := all[:0]
		for _, s := range all { // whoever is not done is in the way
			if s.end > now {
				pending[s.server] += s.tokens
				free[s.server] = max(free[s.server], s.end)
				kept = append(kept, s)
			}
		}
		all = kept
		least, warm := 0, -1
		for e := range 10 {
			if pending[e] < pending[least] {
				least = e
			}
			if slices.Contains(recent[e], j.Segs[0].ID) && (warm < 0 || pending[e] < pending[warm]) {
				warm = e
			}
		}
		e := least
		if warm >= 0 && pending[warm] <= tau {
			e = warm
		}
		tokens := 56500.0
		if at := slices.Index(recent[e], j.Segs[0].ID); at >= 0 {
			tokens = 1500
			hits++
			recent[e] = slices.Delete(recent[e], at, at+1)
		} else if len(recent[e]) == 4 {
			recent[e] = recent[e][1:]
		}
		recent[e] = append(recent[e], j.Segs[0].ID)
		end := max(free[e], now) + Instant(tokens*1e9/20480)
		all = append(all, served{e, end, tokens})
		ttfts = append(ttfts, (end - now).Seconds())
	}
	return ttfts, float64(hits) / float64(len(ttfts))
}

// The event engine and the reference must give the same times to first token,
// request by request, under the article's two policies.
func TestToyAgreesWithReference(t *testing.T) {
	preset, err := FindPreset("seed")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rate, tau float64
	}{{4, policies.Tau}, {40, policies.AlwaysTau}, {60, policies.Tau}, {60, 60000}} {
		sc := preset.At(c.rate)
		sc.Until = 120 * time.Second
		sc.Traffic = func(seed uint64) traffic.Source {
			return traffic.NewPoisson(traffic.Constant(c.rate), sc.Until, seed, traffic.SeedPrefixes().Draw(1))
		}
		res, err := Run(context.Background(), sc, policies.Article("article", c.tau, 4), 3)
		if err != nil {
			t.Fatal(err)
		}
		want, hit := reference(c.rate, 120, c.tau, 3)
		slices.Sort(want)
		if res.Completed != len(want) {
			t.Fatalf("%d completed, reference %d", res.Completed, len(want))
		}
		if math.Abs(res.HitJobs-hit) > 1e-9 {
			t.Errorf("rate %v tau %v: hit rate %v, reference %v", c.rate, c.tau, res.HitJobs, hit)
		}
		for _, q := range []struct{ got, want float64 }{
			{res.P50, quantile.Of(want, .5)}, {res.P90, quantile.Of(want, .9)}, {res.P99, quantile.Of(want, .99)},
		} {
			if math.Abs(q.got-q.want) > 1e-6*q.want+1e-6 {
				t.Errorf("rate %v tau %v: quantile %v, reference %v", c.rate, c.tau, q.got, q.want)
			}
		}
	}
}
