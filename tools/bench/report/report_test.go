package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tautline/tautline/tools/bench/stream"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample is a run of three rounds: direct, an agent, nginx; one path is absent.
func sample() *Report {
	round := func(p50 float64, cpu Value, share Value) StreamRound {
		return StreamRound{
			P50: p50, P90: 2 * p50, P99: 5 * p50, Max: 20 * p50, PerSec: 10000, Chunks: 50000, Answers: 160,
			RouterCPU: cpu, ServerCPU: Of(12.5), ClientCPU: Of(9), MachineCPU: Of(60), Busy: Of(0.61), Stolen: Of(0),
			Switches: share, Spliced: share, AllChunks: 60000, AllResponses: 200,
		}
	}
	requests := func(perSec float64, cpu Value) []RequestRound {
		return []RequestRound{{PerSec: perSec, P50: 1e8 / perSec, P99: 3e8 / perSec, Requests: 2000, RouterCPU: cpu}}
	}
	r := &Report{
		Host:     Host{Kernel: "6.18.0", CPUs: 2, Go: "go1.26"},
		Settings: Settings{API: "chat", Streams: 200, Rate: 50, Tokens: 300, ChunkBytes: 220, Pattern: "batch", Rounds: 3, Seconds: 5, Concurrency: 200, BodyBytes: 220000, TTFTStreams: 20, IdleStreams: 1000, ServerThreads: 1},
		Paths: []Path{
			{
				Name: "direct", Streams: []StreamRound{round(1000, Value{}, Value{}), round(1100, Value{}, Value{}), round(9000, Value{}, Value{})},
				Requests: requests(1000, Value{}), TTFT: []TTFTRound{{P50: 300, P99: 900, Requests: 200}}, Idle: &Idle{Streams: 1000},
			},
			{
				Name: "spliced", Streams: []StreamRound{round(1200, Of(2), Of(0.98)), round(1350, Of(2.5), Of(0.99)), round(9150, Of(1.5), Of(0.97))},
				Requests: requests(700, Of(400)), TTFT: []TTFTRound{{P50: 700, P99: 1900, Requests: 200}},
				Idle: &Idle{Streams: 1000, Before: Of(20 << 20), With: Of(60 << 20), PerStream: Of(40 << 20 / 1000), CPU: Of(0.01)},
			},
			{
				Name: "nginx", Streams: []StreamRound{round(3000, Of(24), Value{}), round(3100, Of(25), Value{}), round(11000, Of(23), Value{})},
				Requests: requests(600, Of(300)), TTFT: []TTFTRound{{P50: 800, P99: 2900, Requests: 200}},
				Idle: &Idle{Streams: 1000, Before: Of(10 << 20), With: Of(30 << 20), PerStream: Of(20 << 20 / 1000), CPU: Of(0)},
			},
		},
		Skipped: []Skipped{{Name: "haproxy", Why: "not installed: no haproxy"}},
	}
	r.Summarize()
	return r
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; go test -update writes it anew. got:\n%s", file, got)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Table(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", b.Bytes())
}

func TestTableOfOnePhaseWithFaults(t *testing.T) {
	r := sample()
	for i := range r.Paths {
		r.Paths[i].Requests, r.Paths[i].TTFT, r.Paths[i].Idle = nil, nil, nil
	}
	r.Paths = r.Paths[:2]
	r.Paths[1].Streams[1].Faults = stream.Faults{Lost: 3}
	for i := range r.Paths[1].Streams {
		r.Paths[1].Streams[i].Busy = Of(0.99)
	}
	r.Paths[1].Streams[1].First = "response 7: event 4 came after event 0"
	r.Summarize()
	var b bytes.Buffer
	if err := r.Table(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "faults.txt", b.Bytes())
}

func TestChart(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Chart().SVG(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "chart.svg", b.Bytes())
	wellFormed(t, b.Bytes())
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error("a chart with figures that are none")
	}
}

func TestChartOfNothingIsStillOne(t *testing.T) {
	var b bytes.Buffer
	if err := (&Report{}).Chart().SVG(&b); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.Bytes())
}

func TestChartEscapesNames(t *testing.T) {
	r := sample()
	r.Paths[2].Name = "a<b&c"
	r.Summarize()
	var b bytes.Buffer
	if err := r.Chart().SVG(&b); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.Bytes())
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not XML: %v", err)
		}
	}
}

func TestJSONComesBack(t *testing.T) {
	want := sample()
	text, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", append(text, '\n'))
	var got Report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, want) {
		t.Error("the report is another one after JSON")
	}
}

func TestRatiosAreTakenWithinRounds(t *testing.T) {
	r := sample()
	row := r.Summary[1]
	near := func(name string, v Value, want float64) {
		t.Helper()
		if !v.OK || math.Abs(v.X-want) > 1e-9 {
			t.Errorf("%s is %+v, want %g", name, v, want)
		}
	}
	near("p50", row.P50, 1350)
	near("max", row.Max, 20*9150)
	// 200, 250, 150; the medians' difference would be the same only by chance.
	near("added p50", row.AddedP50, 200)
	// 200/2000, 250/2000, 150/2000
	near("added p50 ratio", row.AddedRatio, 0.1)
	// 2/24, 2.5/25, 1.5/23
	near("CPU ratio", row.CPURatio, 2.0/24)
	near("added TTFT", row.AddedTTFT, 400)
	if d := r.Summary[0]; d.AddedP50.OK || d.RouterCPU.OK || d.CPURatio.OK {
		t.Errorf("direct has what only a router has: %+v", d)
	}
}

func TestReferenceThatAddsNothingGivesNoRatio(t *testing.T) {
	r := sample()
	for i := range r.Paths[2].Streams {
		r.Paths[2].Streams[i].P50 = 10
	}
	r.Summarize()
	if v := r.Summary[1].AddedRatio; v.OK {
		t.Errorf("got %g", v.X)
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		in   []Value
		want Value
	}{
		{nil, Value{}},
		{[]Value{{}, {}}, Value{}},
		{[]Value{Of(3)}, Of(3)},
		{[]Value{Of(3), {}, Of(1)}, Of(2)},
		{[]Value{Of(9), Of(1), Of(2)}, Of(2)},
	} {
		if got := median(tc.in); got != tc.want {
			t.Errorf("median of %v is %v, want %v", tc.in, got, tc.want)
		}
	}
}

func TestExact(t *testing.T) {
	if !sample().Exact() {
		t.Error("the sample is not exact")
	}
	for name, spoil := range map[string]func(*Report){
		"a fault":             func(r *Report) { r.Paths[1].Streams[2].Faults.Doubled = 1 },
		"a refused stream":    func(r *Report) { r.Paths[1].Streams[0].Failed = 1 },
		"no stream at all":    func(r *Report) { r.Paths[1].Streams[0].AllResponses = 0 },
		"a failed request":    func(r *Report) { r.Paths[1].Requests[0].Failed = 1 },
		"no request at all":   func(r *Report) { r.Paths[1].Requests[0].Requests = 0 },
		"a failed TTFT":       func(r *Report) { r.Paths[1].TTFT[0].Failed = 1 },
		"no first token":      func(r *Report) { r.Paths[1].TTFT[0].Requests = 0 },
		"a broken idle phase": func(r *Report) { r.Paths[1].Idle.Failed = 1 },
	} {
		r := sample()
		spoil(r)
		if r.Exact() {
			t.Errorf("%s is called exact", name)
		}
	}
}

func TestSplicedShare(t *testing.T) {
	r := sample()
	if share, err := r.SplicedShare(); err != nil || share != 0.97 {
		t.Errorf("got %g, %v, want the worst round", share, err)
	}
	for name, tc := range map[string]struct {
		spoil func(*Report)
		want  string
	}{
		"untold":    {func(r *Report) { r.Paths[1].Streams[1].Spliced = Value{} }, "told no spliced share in round 2"},
		"no rounds": {func(r *Report) { r.Paths[1].Streams = nil }, "only where streams are measured"},
		"not asked": {func(r *Report) { r.Paths[1].Name = "other" }, "not asked for"},
		"skipped": {func(r *Report) {
			r.Paths[1].Name = "other"
			r.Skipped = []Skipped{{"spliced", "no privileges"}}
		}, "no privileges"},
	} {
		r := sample()
		tc.spoil(r)
		if _, err := r.SplicedShare(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAxis(t *testing.T) {
	for _, high := range []float64{0.003, 1, 3.7, 10, 24, 999, 12345} {
		a := newAxis(high/10, high, false)
		if a.high < high || len(a.ticks) < 3 || len(a.ticks) > 8 {
			t.Errorf("linear to %g: %+v", high, a)
		}
		l := newAxis(high/10, high, true)
		if l.high < high*0.999 || l.low > high/10*1.001 || l.at(high) > chartLeft+chartPlot {
			t.Errorf("logarithmic to %g: %+v", high, l)
		}
	}
}
