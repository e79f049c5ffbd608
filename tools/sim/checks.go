package sim

import (
	"context"
	"fmt"

	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/tools/sim/traffic"
)

// Check is one statement of the article about its toy, and what came of it.
type Check struct {
	Name   string `json:"name"`
	Want   string `json:"want"`
	Got    string `json:"got"`
	Passed bool   `json:"passed"`
}

// seedRun is what the checks look at: medians of runs at one rate.
type seedRun struct {
	policy string
	rate   float64
	tau    float64 // 0 = the policy's own
}

// The points that the checks need beside the article's own code.
var seedRuns = []seedRun{
	{"round-robin", 4, 0}, {"round-robin", 6, 0}, {"round-robin", 10, 0},
	{"always-sticky", 2, 0}, {"always-sticky", 40, 0}, {"always-sticky", 60, 0}, {"always-sticky", 80, 0},
	{"sticky-absolute", 2, 0}, {"sticky-absolute", 60, 0}, {"sticky-absolute", 80, 0},
	{"sticky-absolute", 60, 55000}, {"sticky-absolute", 60, 1500000},
	{"article-always-sticky", 2, 0}, {"article-saturating", 2, 0},
	{"article-always-sticky", 60, 0}, {"article-saturating", 60, 0},
	{"article-saturating", 60, 27500}, {"article-saturating", 60, 55000},
}

// SeedChecks runs the seed's scenario as far as its checks need it and judges
// each. What is bistable is judged by the median over the seeds and reports its
// range.
func SeedChecks(ctx context.Context, seeds, workers int, done func(finished, all int)) ([]Check, error) {
	preset, err := FindPreset("seed")
	if err != nil {
		return nil, err
	}
	var points []Point
	for _, r := range seedRuns {
		p, err := policyAt(r.policy, r.tau)
		if err != nil {
			return nil, err
		}
		points = append(points, Point{X: r.rate, Scenario: preset.At(r.rate), Policy: p})
	}
	rows, err := Sweep(ctx, points, seeds, workers, done)
	if err != nil {
		return nil, err
	}
	return judge(func(policy string, rate, tau float64) *Row {
		for i, r := range seedRuns {
			if r == (seedRun{policy, rate, tau}) {
				return &rows[i]
			}
		}
		panic("a check asks for a run that is not made: " + policy)
	}), nil
}

// policyAt finds a policy by name, with a limit of its own unless tau is 0.
func policyAt(name string, tau float64) (policies.Policy, error) {
	found, err := policies.Find([]string{name})
	if err != nil {
		return policies.Policy{}, err
	}
	if tau == 0 {
		return found[0], nil
	}
	return policies.WithTau(name, tau)
}

func judge(row func(policy string, rate, tau float64) *Row) []Check {
	var out []Check
	within := func(name string, s Spread, lo, hi float64, format string) {
		f := func(x float64) string { return fmt.Sprintf(format, x) }
		got := f(s.Median)
		if s.Min != s.Max {
			got += fmt.Sprintf(" (%s to %s)", f(s.Min), f(s.Max))
		}
		out = append(out, Check{name, f(lo) + " to " + f(hi), got, s.Median >= lo && s.Median <= hi})
	}
	at := func(policy string, rate, tau float64, figure func(*Result) float64) Spread {
		return row(policy, rate, tau).Of(figure)
	}
	exact := func(x float64) Spread { return Spread{x, x, x} }

	hottest := traffic.NewZipf(40, 1.1).Share(0)
	within("share of the hottest prefix: 27.2 %", exact(100*hottest), 27.15, 27.25, "%.2f %%")
	hot := 1 / (hottest * 1500 / seedRate)
	within("rate at which its server alone is full: 50/s", exact(hot), 49.5, 50.5, "%.1f/s")

	hit := at("round-robin", 10, 0, hitJobs)
	within("round-robin: hit rate 35 %", Spread{100 * hit.Median, 100 * hit.Min, 100 * hit.Max}, 33.5, 36.5, "%.1f %%")
	within("round-robin: the fleet is capped at 5.5/s", at("round-robin", 10, 0, throughput), 5.3, 5.7, "%.2f/s")
	within("round-robin: keeps up at 4/s, p90", at("round-robin", 4, 0, p90), 0, 15, "%.1f s")
	within("round-robin: falls behind at 6/s, p90", at("round-robin", 6, 0, p90), 20, 1000, "%.1f s")

	within("always-sticky: healthy at 40/s, p90", at("always-sticky", 40, 0, p90), 0, 5, "%.2f s")
	within("always-sticky: in trouble at 60/s, p90 121.8 s", at("always-sticky", 60, 0, p90), 60, 200, "%.1f s")
	within("always-sticky: p90 at 80/s 292 s", at("always-sticky", 80, 0, p90), 220, 360, "%.1f s")
	within("sticky until saturated: p90 at 60/s 3.21 s", at("sticky-absolute", 60, 0, p90), 1, 6, "%.2f s")
	better := row("always-sticky", 80, 0).Of(p90).Median
	within("sticky until saturated: worse than always-sticky at 80/s, p90 1,000 s", at("sticky-absolute", 80, 0, p90), better, 3000, "%.0f s")

	within("always-sticky, ties by index: p90 at 2/s is one cold fill, 2.76 s", at("article-always-sticky", 2, 0, p90), 2.7, 2.85, "%.2f s")
	within("saturating, ties by index: p90 at 2/s is one cold fill, 2.76 s", at("article-saturating", 2, 0, p90), 2.7, 2.85, "%.2f s")
	within("always-sticky, ties at random: p90 at 2/s is below a cold fill", at("always-sticky", 2, 0, p90), 0.05, 2.7, "%.2f s")
	within("always-sticky, article's code: p90 at 60/s 121.8 s", at("article-always-sticky", 60, 0, p90), 60, 200, "%.1f s")
	within("saturating, article's code: p90 at 60/s 3.21 s", at("article-saturating", 60, 0, p90), 1, 6, "%.2f s")

	percent := func(s Spread) Spread { return Spread{100 * s.Median, 100 * s.Min, 100 * s.Max} }
	within("the cliff, article's code: hit rate at tau 27,500, 60/s: 35 %", percent(at("article-saturating", 60, 27500, hitJobs)), 33.5, 36.5, "%.1f %%")
	within("the cliff, article's code: hit rate at tau 55,000, 60/s: 35 %", percent(at("article-saturating", 60, 55000, hitJobs)), 33.5, 36.5, "%.1f %%")
	within("above the cliff, article's code: hit rate at tau 286,720, 60/s", percent(at("article-saturating", 60, 0, hitJobs)), 95, 100, "%.1f %%")
	// Ours counts a request's own uncached tokens when load decides, as llm-d
	// does, so what is released still prefers a warm server: the hit rate stays
	// high, and yet the fleet falls behind.
	within("the cliff: p90 at tau 55,000, 60/s", at("sticky-absolute", 60, 55000, p90), 100, 6000, "%.0f s")
	within("the cliff: throughput at tau 55,000, 60/s", at("sticky-absolute", 60, 55000, throughput), 5, 45, "%.1f/s")
	within("above the cliff: hit rate at tau 286,720, 60/s", percent(at("sticky-absolute", 60, 0, hitJobs)), 95, 100, "%.1f %%")
	slope := row("sticky-absolute", 60, 0).Of(p90).Median
	within("the slope: p90 at tau 1,500,000 is above that at 286,720", at("sticky-absolute", 60, 1500000, p90), slope, 200, "%.1f s")
	return out
}
