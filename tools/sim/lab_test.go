package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/sim/traffic"
)

// The seed's preset is judged however its defaults are spelled, and only when
// nothing of it was changed.
func TestChecksBelongToThePlainSeed(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want bool
	}{
		{Options{}, true}, {Options{Preset: "seed", Conditions: Conditions{Memory: 1, Agents: 1}}, true}, {Options{Format: "json", Seeds: 8}, true},
		{Options{Conditions: Conditions{Memory: 2}}, false}, {Options{Conditions: Conditions{Agents: 2}}, false}, {Options{Conditions: Conditions{Unstreamed: true}}, false}, {Options{Conditions: Conditions{Duration: time.Second}}, false},
		{Options{Loads: []float64{4}}, false}, {Options{Policies: []string{"priced"}}, false}, {Options{Preset: "b2b"}, false},
		{Options{Sweep: "rate=4:8:2"}, false},
	} {
		p, err := c.o.plan()
		if err != nil {
			t.Fatal(err)
		}
		if p.checks != c.want {
			t.Errorf("%+v: judged %v, want %v", c.o, p.checks, c.want)
		}
	}
}

func TestParseSweep(t *testing.T) {
	what, values, err := parseSweep("tau=0:100000:25000")
	if err != nil || what != "tau" || len(values) != 5 || values[0] != 0 || values[4] != 100000 {
		t.Errorf("%s %v %v", what, values, err)
	}
	if _, values, err = parseSweep("rate=0.1:0.5:0.1"); err != nil || len(values) != 5 {
		t.Errorf("%v %v", values, err)
	}
	for _, bad := range []string{"tau", "tau=", "x=1:2:1", "tau=1:2", "tau=1:2:0", "tau=2:1:1", "tau=a:2:1", "rate=0:2:1", "tau=1:1e9:1", "tau=NaN:2:1", "tau=1:Inf:1", "tau=-1:2:1"} {
		if _, _, err := parseSweep(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"nosuch":   {Preset: "nosuch"},
		"policy":   {Policies: []string{"nosuch"}},
		"format":   {Format: "xml"},
		"load":     {Loads: []float64{0}},
		"negative": {Seeds: -1},
		"sweep":    {Sweep: "tau=1:2"},
		"no tau":   {Policies: []string{"round-robin"}, Sweep: "tau=1:2:1"},
		"trace":    {Trace: "/nonexistent"},
		"half":     {Preset: "codegen", Loads: []float64{0.5}},
		"halves":   {Preset: "chat", Sweep: "rate=10:11:0.5"},
		"toy only": {Preset: "b2b", Policies: []string{"article-saturating"}, Loads: []float64{1}, Conditions: Conditions{Duration: time.Second}},
	} {
		if _, err := Lab(context.Background(), o, &bytes.Buffer{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestLabWritesWhatItPromises(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	var out, bar bytes.Buffer
	rep, err := Lab(context.Background(), Options{
		Preset: "seed", Policies: []string{"round-robin", "sticky-absolute"}, Loads: []float64{4, 20},
		Seeds: 2, Conditions: Conditions{Duration: 30 * time.Second}, Out: dir, Format: "json", Progress: &bar,
	}, &out)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Rows) != 4 || len(back.Rows[0].Runs) != 2 {
		t.Errorf("JSON of %d rows, %v", len(back.Rows), err)
	}
	if len(rep.Checks) != 0 {
		t.Error("a shortened run is judged by checks that are made for the full one")
	}
	for _, name := range []string{"report.html", "results.json", "p90.svg", "hit.svg", "throughput.svg", "load-round-robin.svg", "load-sticky-absolute.svg", "p90.png", "load-round-robin.png"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(data) < 500 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	if !strings.Contains(bar.String(), "8 of 8 runs") {
		t.Errorf("bar: %q", bar.String())
	}
	out.Reset()
	if err := rep.Table(&out); err != nil || strings.Count(out.String(), "\n") != 5 {
		t.Errorf("table:\n%s%v", out.String(), err)
	}
}

func TestTauSweepRunsWhatHasATau(t *testing.T) {
	rep, err := Lab(context.Background(), Options{
		Policies: []string{"round-robin", "sticky-absolute"}, Loads: []float64{20}, Sweep: "tau=50000:150000:50000",
		Seeds: 1, Conditions: Conditions{Duration: 20 * time.Second},
	}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Rows) != 3 || rep.Rows[2].X != 150000 || rep.Rows[0].Policy != "sticky-absolute" {
		t.Errorf("rows %v", rep.Rows)
	}
}

func TestChecksPrintTheirVerdict(t *testing.T) {
	rep := &Report{Checks: []Check{{"a", "1", "1", true}, {"b", "1", "2", false}}}
	var out bytes.Buffer
	if err := rep.Table(&out); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "pass  a") || !strings.Contains(s, "FAIL  b") || !rep.Failed() {
		t.Errorf("%s", s)
	}
}

func TestTraceIsReplayed(t *testing.T) {
	mooncake := ""
	for i := range 50 {
		mooncake += `{"timestamp": ` + strconv.Itoa(100*i) + `, "input_length": 3000, "output_length": 20, "hash_ids": [1, 2, 3, 4, 5, 1` + strconv.Itoa(i%5) + `]}` + "\n"
	}
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := traffic.ConvertMooncake(strings.NewReader(mooncake), f)
	if err != nil || n != 50 {
		t.Fatalf("%d converted, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	rep, err := Lab(context.Background(), Options{Preset: "b2b", Trace: path, Policies: []string{"priced"}, Seeds: 1}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	res := rep.Rows[0].Runs[0]
	if res.Jobs != 50 || res.Unfinished != 0 || res.HitTokens < 0.5 || res.Arrived >= 50 {
		t.Errorf("%+v", res)
	}
}

// The seed's toy knows no trace; what no engine could hold is refused, and does
// not stop those behind it.
func TestOddTraces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	lines := `{"time":0,"input":100,"output":5}
{"time":50,"input":10000000,"output":5}
{"time":51,"chain":[1],"input":600,"output":5}
{"time":100,"chain":[1],"input":600,"output":0}
`
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Lab(context.Background(), Options{Preset: "seed", Trace: path}, &bytes.Buffer{}); err == nil {
		t.Error("the toy took a trace")
	}
	var out bytes.Buffer
	rep, err := Lab(context.Background(), Options{Trace: path, Policies: []string{"priced", "random"}, Seeds: 1}, &out)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rep.Rows {
		if r := rep.Rows[i].Runs[0]; r.Arrived != 3 || r.Completed != 2 || r.Refused != 1 {
			t.Errorf("%s: %+v", rep.Rows[i].Policy, r)
		}
	}
	if !strings.Contains(out.String(), "refused") {
		t.Errorf("the table hides what was refused:\n%s", out.String())
	}
}

// A sweep of rates is one of speeds under a trace, and lines of charts go from each
// load point to the next however they were named.
func TestLoadsOfASweep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(path, []byte(`{"time":0,"input":100,"output":5}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want []float64
	}{
		{Options{Trace: path, Sweep: "rate=1:3:1"}, []float64{1, 2, 3}},
		{Options{Trace: path}, []float64{1}},
		{Options{Loads: []float64{60, 4, 20}}, []float64{4, 20, 60}},
	} {
		c.o.Policies = []string{"priced"}
		p, err := c.o.plan()
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for _, pt := range p.points {
			got = append(got, pt.X)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: loads %v, want %v", c.o, got, c.want)
		}
	}
}

// What is drawn over a longer line covers all of it.
func TestBarLeavesNothingBehind(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out)
	b.draw(120, 120)
	b.draw(1, 9)
	lines := strings.Split(out.String(), "\r")
	if len(lines) != 3 || len(lines[2]) < len(lines[1]) || !strings.Contains(lines[2], "] 1 of 9 runs ") {
		t.Errorf("%q", lines)
	}
}

// Where everything was refused there are no times, and none are printed.
func TestTableOfNothing(t *testing.T) {
	var out bytes.Buffer
	rep, err := Lab(context.Background(), Options{
		Preset: "b2b", Policies: []string{"priced"}, Loads: []float64{12}, Seeds: 1,
		Conditions: Conditions{Duration: 5 * time.Second, KVTokens: 10},
	}, &out)
	if err != nil {
		t.Fatal(err)
	}
	if r := rep.Rows[0].Runs[0]; r.Arrived == 0 || r.Refused != r.Arrived || strings.Contains(out.String(), " to ") {
		t.Errorf("%d of %d refused:\n%s", r.Refused, r.Arrived, out.String())
	}
}
