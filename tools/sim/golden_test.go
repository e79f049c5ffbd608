package sim

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// What a run gives is fixed by scenario, policy and seed, to the last bit: a
// change for speed must not move it. The policies here are those of others and
// the seed's three on its toy, so the file changes when traffic, engines or the
// event loop do, not when a policy of ours gets better.
func TestOutcomesStay(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("other processors may fuse multiplication and addition, which rounds once instead of twice")
	}
	others := []string{"random", "power-of-two", "bounded-hash", "cache-aware", "cache-aware-eager"}
	var b bytes.Buffer
	line := func(name string, sc Scenario, policies ...string) {
		for _, p := range named(t, policies...) {
			r := run1(t, sc, p, 7)
			fmt.Fprintf(&b, "%s %v %s: jobs %d completed %d unfinished %d refused %d retried %d preempted %d mean %v p50 %v p90 %v p99 %v rate %v hit %v %v believed %v tpot %v spread %v\n",
				name, sc.Load, p.Name, r.Jobs, r.Completed, r.Unfinished, r.Refused, r.Retried, r.Preempted, r.Mean, r.P50, r.P90, r.P99,
				r.Throughput, r.HitTokens, r.HitJobs, r.Believed, r.TPOT, r.Spread)
		}
	}
	for _, p := range Presets() {
		if p.Aside && p.Name != "seed" {
			continue // each a preset of the study, and a condition
		}
		load := p.Loads[len(p.Loads)-1]
		if p.Name == "seed" {
			line(p.Name, preset(t, p.Name, load, 60), append(others, "round-robin", "always-sticky", "sticky-absolute", "article-always-sticky", "article-saturating")...)
			continue
		}
		line(p.Name, preset(t, p.Name, load, 30), others...)
	}
	dying := preset(t, "b2b", 12, 40)
	dying.Outages = []Outage{{Slot: 3, From: 10 * time.Second, To: 20 * time.Second}, {Slot: 4, From: 12 * time.Second, To: 500 * time.Second}}
	dying.Series, dying.Agents, dying.Unstreamed = time.Second, 3, true
	line("outages", dying, others...)

	path := filepath.Join("testdata", "outcomes.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	is, was := bytes.Split(b.Bytes(), []byte("\n")), bytes.Split(want, []byte("\n"))
	if len(is) != len(was) {
		t.Fatalf("%d lines, %s has %d", len(is), path, len(was))
	}
	for i := range is {
		if !bytes.Equal(is[i], was[i]) {
			t.Errorf("is  %s\nwas %s", is[i], was[i])
		}
	}
}
