package sim

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/sim/traffic"
)

func TestParseOutage(t *testing.T) {
	for s, want := range map[string]Outage{
		"3:120s:180s": {3, 120 * time.Second, 180 * time.Second},
		"0:0s:1m":     {0, 0, time.Minute},
		"9:1m30s":     {9, 90 * time.Second, traffic.Never},
	} {
		if got, err := ParseOutage(s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "3", "3:", "x:1s", "-1:1s", "3:1s:1s", "3:2s:1s", "3:-1s", "3:1s:2s:3s", "3:1:2"} {
		if _, err := ParseOutage(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

func TestConditionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"agents":           {Conditions: Conditions{Agents: -1}},
		"memory":           {Conditions: Conditions{Memory: math.NaN()}},
		"TTL":              {Conditions: Conditions{TTL: -1}},
		"slots":            {Preset: "b2b", Conditions: Conditions{DecodeSlots: -1}},
		"slots over batch": {Preset: "b2b", Conditions: Conditions{DecodeSlots: 300, BatchTokens: 256}},
		"toy's batch":      {Conditions: Conditions{BatchTokens: 512}},
		"toy's polls":      {Preset: "seed", Conditions: Conditions{Polls: time.Second}},
		"no such backend":  {Preset: "b2b", Conditions: Conditions{Outages: []Outage{{10, 0, time.Second}}}},
	} {
		if _, err := o.plan(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Each condition does what its name says, on the preset that is made of it.
func TestConditionsWork(t *testing.T) {
	base := preset(t, "b2b", 12, 60)
	run := func(c Conditions) Result {
		sc := preset(t, "b2b", 12, 60)
		if err := c.apply(&sc); err != nil {
			t.Fatal(err)
		}
		return run1(t, sc, named(t, "sticky-until-saturated")[0], 1)
	}
	plain := run1(t, base, named(t, "sticky-until-saturated")[0], 1)
	if c := run(Conditions{BatchTokens: 1024}); c.Mean <= plain.Mean {
		t.Errorf("mean %.3f s in small chunks, %.3f s in large ones", c.Mean, plain.Mean)
	}
	if c := run(Conditions{DecodeSlots: 24}); c.P90 < 2*plain.P90 {
		t.Errorf("p90 %.3f s with few decode slots, %.3f s with many", c.P90, plain.P90)
	}
	if c := run(Conditions{KVTokens: 65536}); c.HitTokens > plain.HitTokens-0.1 {
		t.Errorf("hit rate %.3f with a quarter of the cache, %.3f with all", c.HitTokens, plain.HitTokens)
	}
	if c := run(Conditions{TTL: 2 * time.Second}); c.Believed > 0.9*plain.Believed {
		t.Errorf("a router that forgets believes %.3f of what is cached, one that does not %.3f", c.Believed, plain.Believed)
	}
	if c := run(Conditions{Outages: []Outage{{3, 30 * time.Second, 31 * time.Second}}}); c.Retried == 0 || c.Believed <= plain.Believed {
		t.Errorf("a restart: %d retried, %.3f believed, %.3f without", c.Retried, c.Believed, plain.Believed)
	}
	if c := run(Conditions{Unexplored: true}); c.Outcomes["exploration"] != 0 || plain.Outcomes["exploration"] == 0 {
		t.Errorf("%d explorations, %d by default", c.Outcomes["exploration"], plain.Outcomes["exploration"])
	}
	if c := run(Conditions{Polls: 20 * time.Second, Unstreamed: true}); c.Mean == run(Conditions{Unstreamed: true}).Mean {
		t.Error("polls that come late change nothing, though only they show first tokens")
	}
}

// A preset aside is another one with a condition: none is without effect.
func TestAsidePresetsDiffer(t *testing.T) {
	p90s := map[float64]string{}
	for _, p := range Presets() {
		if !p.Aside || p.Name == "seed" {
			continue
		}
		sc := p.At(p.Knee)
		if len(sc.Outages) == 0 {
			sc.Shorten(200 * time.Second)
		}
		res := run1(t, sc, named(t, "sticky-until-saturated")[0], 1)
		if other, there := p90s[res.P90]; there || res.Completed < 50 {
			t.Errorf("%s: %d completed, p90 %v as %s", p.Name, res.Completed, res.P90, other)
		}
		p90s[res.P90] = p.Name
		t.Logf("%s %v: p90 %.2f s, %.2f/s, hit %.2f, %d retried, %d unfinished", p.Name, p.Knee, res.P90, res.Throughput, res.HitTokens, res.Retried, res.Unfinished)
	}
}

func TestPresetsAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Presets() {
		if seen[p.Name] || p.About == "" || p.Unit == "" || len(p.Loads) < 2 || p.Knee < p.Loads[0] {
			t.Errorf("%+v", p)
		}
		seen[p.Name] = true
	}
}
