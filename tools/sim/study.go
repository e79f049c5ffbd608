package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/tautline/tautline/tools/sim/policies"
)

// StudyOptions ask for a comparison of policies over many workloads.
type StudyOptions struct {
	Presets  []string // none = all that are not aside
	Policies []string // none = all that a router could have, see DefaultPolicies
	Seeds    int      // 0 = 3; the tables of DECISIONS.md use 8
	Workers  int      // 0 = all processors
	Overload bool     // also the loads above the knee
	Journal  string   // file that keeps finished runs, see Journal; "" = none
	Conditions

	Format   string // "table" (also "") or "json"
	Progress io.Writer

	extra []policies.Policy // candidates under test
}

// Study is the result: a cell per policy and load point.
type Study struct {
	Seeds  int          `json:"seeds"`
	Points []StudyPoint `json:"points"`
	Totals []Total      `json:"totals"`
}

// StudyPoint is one load point of a workload under every policy.
type StudyPoint struct {
	Preset  string  `json:"preset"`
	Load    float64 `json:"load"`
	Knee    bool    `json:"at_or_below_knee"`
	HoldOut bool    `json:"hold_out"`
	Rows    []Row   `json:"rows"` // one per policy, in the same order everywhere
}

// AskedShare is what share of the requests that a policy was asked for another
// one must have been asked for as well, to be a measure for it. In a closed loop
// who answers slowly is asked less and has shorter queues for it, and nobody who
// runs a fleet wants those. In an open loop all are asked the same. A twentieth
// is what policies that answer all there is to answer differ by from seed to
// seed.
const AskedShare = 0.95

// Total counts at how many points a policy is close to the best of the study.
type Total struct {
	Policy     string  `json:"policy"`
	Points     int     `json:"points"`      // at or below the knee
	Over       int     `json:"over_points"` // above it
	Throughput int     `json:"throughput"`  // points at or below the knee with >= 95 % of the best throughput
	WorstRate  float64 `json:"worst_rate"`  // smallest share of it there
	OverRate   float64 `json:"over_rate"`   // and above the knee
	Serving    Gap     `json:"serving"`     // to the best p90 of the policies that serve as much, see AskedShare
	All        Gap     `json:"all"`         // to the best p90 of all policies
}

// Gap is how far a policy's p90 is behind a best one.
type Gap struct {
	Within    int     `json:"within"`     // points at or below the knee with p90 <= best + 5 %
	Within100 int     `json:"within_100"` // ... + 0.1 s
	Within300 int     `json:"within_300"` // ... + 0.3 s
	Excess    float64 `json:"excess"`     // worst p90 over best, s
	ExcessAt  string  `json:"excess_at"`
	Overload  float64 `json:"overload"` // geometric mean of p90 over the best above the knee; 0 = not run
	Far       int     `json:"far"`      // points above the knee with p90 over 1.25 x best + 0.1 s

	logs float64
}

// add takes in a point.
func (g *Gap) add(p *StudyPoint, mine, best float64) {
	if !p.Knee {
		g.logs += math.Log(max(mine, 1e-3) / max(best, 1e-3))
		if mine > 1.25*best+0.1 {
			g.Far++
		}
		return
	}
	for _, c := range []struct {
		slack float64
		count *int
	}{{0, &g.Within}, {0.1, &g.Within100}, {0.3, &g.Within300}} {
		if mine <= 1.05*best+c.slack {
			*c.count++
		}
	}
	if e := mine - best; e > g.Excess {
		g.Excess, g.ExcessAt = e, fmt.Sprintf("%s %v", p.Preset, p.Load)
	}
}

// RunStudy runs the comparison and writes it to out. Errors of the options are
// OptionErrors.
func RunStudy(ctx context.Context, o StudyOptions, out io.Writer) (*Study, error) {
	names := o.Policies
	if len(names) == 0 {
		names = append(DefaultPolicies(""), "priced-spread", "priced-spread-holding", "sticky-active", "break-even", "least-load", "cache-aware-eager", "power-of-two", "llm-d", "llm-d-active", "llm-d-blend")
	}
	chosen, err := policies.Find(names)
	if err != nil {
		return nil, ofOptions(err)
	}
	chosen = append(chosen, o.extra...)
	if o.Seeds == 0 {
		o.Seeds = 3
	}
	if err := seedsValid(o.Seeds); err != nil {
		return nil, ofOptions(err)
	}
	if err := o.valid(); err != nil {
		return nil, ofOptions(err)
	}
	for _, name := range o.Presets {
		if _, err := FindPreset(name); err != nil {
			return nil, ofOptions(err)
		}
	}
	s := &Study{Seeds: o.Seeds}
	var points []Point
	for _, p := range Presets() {
		if !slices.Contains(o.Presets, p.Name) && (p.Aside || len(o.Presets) > 0) {
			continue
		}
		for _, load := range p.Loads {
			if load > p.Knee && !o.Overload {
				continue
			}
			s.Points = append(s.Points, StudyPoint{Preset: p.Name, Load: load, Knee: load <= p.Knee, HoldOut: p.HoldOut})
			for _, c := range chosen {
				sc := p.At(load)
				err := o.apply(&sc)
				if err == nil {
					err = suits(&sc, c)
				}
				if err != nil {
					return nil, ofOptions(err)
				}
				points = append(points, Point{load, sc, c})
			}
		}
	}
	bar := newBar(o.Progress)
	defer bar.end()
	rows, err := journaled(ctx, o.Journal, "study, "+o.Conditions.String(), points, o.Seeds, o.Workers, bar)
	if err != nil {
		return nil, err
	}
	bar.end()
	for i := range s.Points {
		s.Points[i].Rows = rows[i*len(chosen) : (i+1)*len(chosen)]
	}
	for i, c := range chosen {
		s.Totals = append(s.Totals, s.total(i, c.Name))
	}
	if o.Format == "json" {
		return s, json.NewEncoder(out).Encode(s)
	}
	return s, s.Table(out)
}

func (s *Study) total(policy int, name string) Total {
	t := Total{Policy: name, WorstRate: 1, OverRate: 1}
	for i := range s.Points {
		p := &s.Points[i]
		own := &p.Rows[policy]
		rate, serving, all := 0.0, math.Inf(1), math.Inf(1)
		for k := range p.Rows {
			r := &p.Rows[k]
			rate = max(rate, r.Of(throughput).Median)
			best := r.Of(p90).Median
			all = min(all, best)
			if r.Of(asked).Median >= AskedShare*own.Of(asked).Median {
				serving = min(serving, best)
			}
		}
		mine, share := own.Of(p90).Median, own.Of(throughput).Median/max(rate, 1e-9)
		t.Serving.add(p, mine, serving)
		t.All.add(p, mine, all)
		if !p.Knee {
			t.Over++
			t.OverRate = min(t.OverRate, share)
			continue
		}
		t.Points++
		t.WorstRate = min(t.WorstRate, share)
		if share >= 0.95 {
			t.Throughput++
		}
	}
	if t.Over > 0 {
		t.Serving.Overload = math.Exp(t.Serving.logs / float64(t.Over))
		t.All.Overload = math.Exp(t.All.logs / float64(t.Over))
	}
	return t
}

// Table writes p90 with its range, throughput and hit rate of every cell, and the
// totals.
func (s *Study) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "medians over %d seeds: p90 TTFT s (its range) / answers per s / hit %%\npolicy\t", s.Seeds)
	for _, p := range s.Points {
		mark := ""
		if !p.Knee {
			mark = " (over)"
		}
		fmt.Fprintf(t, "%s %v%s\t", p.Preset, p.Load, mark)
	}
	fmt.Fprintln(t)
	for i, total := range s.Totals {
		fmt.Fprintf(t, "%s\t", total.Policy)
		for k := range s.Points {
			row := &s.Points[k].Rows[i]
			p := row.Of(p90)
			fmt.Fprintf(t, "%.2f (%.2f to %.2f) / %.3g / %.0f\t", p.Median, p.Min, p.Max, row.Of(throughput).Median, 100*row.Of(hitTokens).Median)
		}
		fmt.Fprintln(t)
	}
	for _, g := range []struct {
		name string
		of   func(*Total) *Gap
	}{
		{fmt.Sprintf("p90 against the best of those that were asked for, and so serve, at least %.0f %% of what this policy was", 100*AskedShare), func(t *Total) *Gap { return &t.Serving }},
		{"p90 against the best of all, also where that serves less and is ahead because of it", func(t *Total) *Gap { return &t.All }},
	} {
		fmt.Fprintf(t, "\n%s\npolicy\tpoints\t+5 %%\t+5 %% +0.1 s\t+5 %% +0.3 s\tworst excess\tdone >= 95 %%\tworst done\toverload x best\tover 1.25 x best +0.1 s\tworst done\t\n", g.name)
		for i := range s.Totals {
			c := &s.Totals[i]
			to := g.of(c)
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t+%.2f s (%s)\t%d\t%.0f %%\t%.2f\t%d of %d\t%.0f %%\t\n", c.Policy, c.Points, to.Within, to.Within100, to.Within300,
				to.Excess, to.ExcessAt, c.Throughput, 100*c.WorstRate, to.Overload, to.Far, c.Over, 100*c.OverRate)
		}
	}
	return t.Flush()
}
