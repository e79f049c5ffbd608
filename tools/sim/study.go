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

// Total counts at how many points a policy is close to the best of all. The
// best is taken over the policies of the study.
type Total struct {
	Policy     string  `json:"policy"`
	Points     int     `json:"points"`     // at or below the knee
	Within     int     `json:"within"`     // p90 <= best + 5 %
	Within100  int     `json:"within_100"` // ... + 0.1 s
	Within300  int     `json:"within_300"` // ... + 0.3 s
	Excess     float64 `json:"excess"`     // worst p90 over best, s
	ExcessAt   string  `json:"excess_at"`
	Throughput int     `json:"throughput"`  // >= 95 % of the best
	WorstRate  float64 `json:"worst_rate"`  // smallest share of the best throughput
	Overload   float64 `json:"overload"`    // geometric mean of p90 over the best above the knee; 0 = not run
	Far        int     `json:"far"`         // points above the knee with p90 over 1.25 x best
	Over       int     `json:"over_points"` // points above the knee
}

// RunStudy runs the comparison and writes it to out.
func RunStudy(ctx context.Context, o StudyOptions, out io.Writer) (*Study, error) {
	names := o.Policies
	if len(names) == 0 {
		names = append(DefaultPolicies(""), "priced-spread", "sticky-active", "break-even", "least-load", "cache-aware-eager", "power-of-two")
	}
	chosen, err := policies.Find(names)
	if err != nil {
		return nil, err
	}
	chosen = append(chosen, o.extra...)
	if o.Seeds == 0 {
		o.Seeds = 3
	}
	if o.Seeds < 0 {
		return nil, fmt.Errorf("seeds %d: must not be negative", o.Seeds)
	}
	if err := o.valid(); err != nil {
		return nil, err
	}
	for _, name := range o.Presets {
		if _, err := FindPreset(name); err != nil {
			return nil, err
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
				if err := o.apply(&sc); err != nil {
					return nil, err
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
	t := Total{Policy: name, WorstRate: 1}
	logs, over := 0.0, 0
	for i := range s.Points {
		p := &s.Points[i]
		best, rate := math.Inf(1), 0.0
		for k := range p.Rows {
			best = min(best, p.Rows[k].Of(p90).Median)
			rate = max(rate, p.Rows[k].Of(throughput).Median)
		}
		mine, done := p.Rows[policy].Of(p90).Median, p.Rows[policy].Of(throughput).Median
		if !p.Knee {
			over++
			logs += math.Log(max(mine, 1e-3) / max(best, 1e-3))
			if mine > 1.25*best+0.1 {
				t.Far++
			}
			continue
		}
		t.Points++
		for _, c := range []struct {
			slack float64
			count *int
		}{{0, &t.Within}, {0.1, &t.Within100}, {0.3, &t.Within300}} {
			if mine <= 1.05*best+c.slack {
				*c.count++
			}
		}
		if e := mine - best; e > t.Excess {
			t.Excess, t.ExcessAt = e, fmt.Sprintf("%s %v", p.Preset, p.Load)
		}
		share := done / max(rate, 1e-9)
		t.WorstRate = min(t.WorstRate, share)
		if share >= 0.95 {
			t.Throughput++
		}
	}
	t.Over = over
	if over > 0 {
		t.Overload = math.Exp(logs / float64(over))
	}
	return t
}

// Table writes p90, throughput and hit rate of every cell, and the totals.
func (s *Study) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "medians over %d seeds: p90 TTFT s / answers per s / hit %%\npolicy\t", s.Seeds)
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
			fmt.Fprintf(t, "%.2f / %.3g / %.0f\t", row.Of(p90).Median, row.Of(throughput).Median, 100*row.Of(hitTokens).Median)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "\npolicy\tpoints\t+5 %%\t+5 %% +0.1 s\t+5 %% +0.3 s\tworst excess\tdone >= 95 %%\tworst done\toverload x best\tover 1.25 x best\t\n")
	for _, c := range s.Totals {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t+%.2f s (%s)\t%d\t%.0f %%\t%.2f\t%d of %d\t\n", c.Policy, c.Points, c.Within, c.Within100, c.Within300,
			c.Excess, c.ExcessAt, c.Throughput, 100*c.WorstRate, c.Overload, c.Far, c.Over)
	}
	return t.Flush()
}
