package sim

import (
	"context"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/tools/sim/traffic"
)

// Everything that the article states about its toy, at full length.
func TestSeedChecks(t *testing.T) {
	seeds := 5
	if testing.Short() {
		seeds = 3
	}
	checks, err := SeedChecks(context.Background(), seeds, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		t.Logf("%v: %s: want %s, got %s", c.Passed, c.Name, c.Want, c.Got)
		if !c.Passed {
			t.Errorf("%s: want %s, got %s", c.Name, c.Want, c.Got)
		}
	}
}

// Where the cliff lies depends on the start. The article puts it at about 110,000
// tokens; from empty caches the preset finds it at twice that, since the fills of the
// first seconds already open the gate. When the prefixes are placed at a low rate
// first, it is where the article has it.
func TestTheCliffDependsOnTheStart(t *testing.T) {
	sc := preset(t, "seed", 60, 600)
	calm := sc
	calm.Warmup = 60 * time.Second
	calm.Traffic = func(seed uint64) traffic.Source {
		rate := func(now Instant) float64 {
			if now < calm.Warmup {
				return 20
			}
			return 60
		}
		return traffic.NewPoisson(traffic.Rate{Peak: 60, At: rate}, calm.Until, seed, traffic.SeedPrefixes().Draw(1))
	}
	cases := []struct {
		sc       Scenario
		tau      float64
		collapse bool
	}{
		{sc, 80000, true}, {sc, 160000, true}, {sc, 260000, false},
		{calm, 80000, true}, {calm, 160000, false}, {calm, 260000, false},
	}
	var points []Point
	for _, c := range cases {
		p, err := policies.WithTau("article-saturating", c.tau)
		if err != nil {
			t.Fatal(err)
		}
		points = append(points, Point{c.tau, c.sc, p})
	}
	rows, err := Sweep(context.Background(), points, 3, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		got := rows[i].Of(p90).Median
		t.Logf("calm start %v, tau %.0f: p90 %.1f s, hit %.2f", c.sc.Warmup > 0, c.tau, got, rows[i].Of(hitJobs).Median)
		if is := got > 100; is != c.collapse {
			t.Errorf("calm start %v, tau %.0f: p90 %.1f s", c.sc.Warmup > 0, c.tau, got)
		}
	}
}
