package sim

import (
	"context"
	"testing"
	"time"
)

// What priced-spread learns and agrees on makes the difference where its memory has the
// wrong size and where agents know nothing of each other.
func TestPricedSpreadFindsItsWay(t *testing.T) {
	for _, c := range []struct {
		name   string
		change Conditions
		preset string
		load   float64
		other  string  // policy
		ratio  float64 // most that the p90 may be of the other's
	}{
		{"a memory of half the size", Conditions{Memory: 0.5}, "toy", 40, "priced", 0.5},
		{"a memory four times as large", Conditions{Memory: 4}, "rag", 15, "priced", 0.8},
		{"four agents, a corpus", Conditions{Agents: 4}, "b2b", 16, "priced", 0.05},
		{"four agents, a corpus, by hash alone", Conditions{Agents: 4}, "b2b", 20, "bounded-hash", 0.5},
		{"four agents, conversations", Conditions{Agents: 4}, "agentic", 20, "priced", 0.5},
		{"four agents, tenants", Conditions{Agents: 4}, "thinkpre", 2, "bounded-hash", 0.5},
		{"four agents, nothing shared", Conditions{Agents: 4}, "summar", 2, "priced", 0.9},
		{"four agents that tell each other, nothing shared", Conditions{Agents: 4, Telling: 200 * time.Millisecond}, "summar", 2, "priced", 0.6},
		{"four agents that tell each other, documents", Conditions{Agents: 4, Telling: 200 * time.Millisecond}, "rag", 20, "priced", 0.5},
		{"four agents that tell each other, half a memory", Conditions{Agents: 4, Telling: 200 * time.Millisecond, Memory: 0.5}, "b2b", 20, "bounded-hash", 0.5},
	} {
		var points []Point
		for _, p := range named(t, "priced-spread", c.other) {
			seconds := 300
			if c.preset == "rag" { // they are many
				seconds = 160
			}
			sc := preset(t, c.preset, c.load, seconds)
			if err := c.change.apply(&sc); err != nil {
				t.Fatal(err)
			}
			points = append(points, Point{c.load, sc, p})
		}
		rows, err := Sweep(context.Background(), points, 3, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		mine, other := rows[0].Of(p90).Median, rows[1].Of(p90).Median
		t.Logf("%s: %s %v: %.2f s, %s %.2f", c.name, c.preset, c.load, mine, c.other, other)
		if mine > c.ratio*other {
			t.Errorf("%s: %s %v: %.2f s, more than %v of the %.2f of %s", c.name, c.preset, c.load, mine, c.ratio, other, c.other)
		}
	}
}
