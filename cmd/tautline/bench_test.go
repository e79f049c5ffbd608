package main

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tautline/tautline/tools/bench/report"
	"github.com/tautline/tautline/tools/bench/stream"
)

func TestBenchRefusesBadFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--pattern=waves":       "batch or spread",
		"--chart=out.gif":       ".svg or .png",
		"--assert-spliced=98":   "from 0 to 1",
		"--paths=direct,envoy":  `no path is called "envoy"`,
		"--phases=nothing":      `no phase is called "nothing"`,
		"--peer=caddy":          "name=COMMAND",
		"--streams=0":           "streams must be",
		"--duration=1ms":        "duration must be",
		"--output=xml":          "table or json",
		"--rate=often":          "invalid argument",
		"--chunk-bytes=1":       "chunk-bytes must be",
		"--peer=nginx={listen}": "a path of its own",
	} {
		code, _, errs := exec(t, "", "bench", flag)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, stderr %q; want %d and %q", flag, code, errs, exitUsage, want)
		}
	}
}

// spliced is a report of one round.
func spliced(share float64) *report.Report {
	return &report.Report{Paths: []report.Path{{Name: "spliced", Streams: []report.StreamRound{
		{P50: 1, Spliced: report.Of(share), AllResponses: 10},
	}}}}
}

func TestBenchJudges(t *testing.T) {
	faulty := spliced(1)
	faulty.Paths[0].Streams[0].Faults = stream.Faults{Doubled: 1}
	for name, tc := range map[string]struct {
		r      *report.Report
		assert float64
		want   string // in the error; "" = none
	}{
		"exact":                {spliced(0.5), 0, ""},
		"enough is spliced":    {spliced(0.95), 0.9, ""},
		"too little":           {spliced(0.85), 0.9, "0.8500 of the bytes were spliced"},
		"not exact":            {faulty, 0.9, "not exact"},
		"nothing is spliced":   {&report.Report{Skipped: []report.Skipped{{Name: "spliced", Why: "no privileges"}}}, 0.9, "no privileges"},
		"nothing and no claim": {&report.Report{}, 0, ""},
	} {
		err := judge(tc.r, tc.assert)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}
}

func TestBenchWritesAChart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.svg")
	r := spliced(1)
	r.Summarize()
	if err := writeChart(file, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.NewDecoder(bytes.NewReader(text)).Decode(new(struct{})); err != nil {
		t.Errorf("not XML: %v", err)
	}
	raster := filepath.Join(t.TempDir(), "bench.png")
	if err := writeChart(raster, r); err != nil {
		t.Fatal(err)
	}
	if pixels, err := os.ReadFile(raster); err != nil || !bytes.HasPrefix(pixels, []byte("\x89PNG")) {
		t.Errorf("not a PNG: %v", err)
	}
	if err := writeChart(filepath.Join(file, "below"), r); err == nil {
		t.Error("a chart was written below a file")
	}
}
