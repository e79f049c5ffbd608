package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tautline/tautline/tools/calibrate"
	"github.com/tautline/tautline/tools/sim"
	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/userspace/decide"
)

// What calibrate prints as tau is what an agent makes of the measured rate.
func TestCalibrateAndAgentTolerateTheSame(t *testing.T) {
	if is, want := calibrate.DefaultTolerance, decide.Default().TTFTTolerance; is != want {
		t.Errorf("calibrate's default is %v, the agent's routing.ttft_tolerance %v", is, want)
	}
}

// The article's numbers are plan's defaults; its tolerance is spelled as calibrate's.
func TestPlanPrintsTheArticlesNumbers(t *testing.T) {
	for _, args := range [][]string{{"plan"}, {"plan", "--tolerance", "14s"}} {
		code, out, errs := exec(t, "", args...)
		if code != exitOK {
			t.Fatalf("exit %d: %s", code, errs)
		}
		flat := strings.ReplaceAll(out, ",", "")
		for _, want := range []string{"286720", "262144", "13.43", "2.69", "37.7"} {
			if !strings.Contains(flat, want) {
				t.Errorf("%v lacks %s:\n%s", args, want, out)
			}
		}
	}
	if _, out, _ := exec(t, "", "plan", "--tolerance", "18s"); !strings.Contains(strings.ReplaceAll(out, ",", ""), "368640") {
		t.Errorf("18 s at 20,480 tokens/s are not 368,640 tokens:\n%s", out)
	}
}

func TestSimRefusesOddInput(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(`{"time":0,"input":5}`+"\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(t.TempDir(), "late.jsonl")
	if err := os.WriteFile(late, []byte(`{"time":0,"input":5}`+"\n"+`{"time":9,"input":5}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--trace " + trace:            "line 2",
		"--convert-mooncake " + trace: "line 1",
		"--sweep rate=":               "rate=from:to:step",
		"--sweep tau=5:1:1":           "1 to 10,000 points",
		"--load 0":                    "must be positive",
		"--load NaN":                  "must be positive",
		"--seeds -1":                  "must not be negative",
		"--preset codegen --load 0.5": "counts conversations",
		"--preset nowhere":            `preset "nowhere"`,
		"--policy nobody":             `policy "nobody"`,
		"--preset b2b --outage 3":     `outage "3"`,
		"--outage 3:1s":               "is a toy",
		"--study --preset nowhere":    `preset "nowhere"`,
		"--preset b2b --load 2 --duration 1s --policy article-saturating": "toy only",
		"--study --preset b2b --duration 1s --policy article-saturating":  "toy only",
		"--load 1e9":                          "no more than 1000000",
		"--load 4,4":                          "load 4: named twice",
		"--load 4 --sweep rate=1:2:1":         "and so does [4]",
		"--policy priced,priced":              "named twice",
		"--seeds 1000000000":                  "seeds 1000000000",
		"--telling 200ms":                     "nobody to tell",
		"--agents 1000000":                    "at most 1,000",
		"--preset b2b --ttl 2000000h":         "TTL 2000000h",
		"--preset b2b --polls 1ns":            "a thousand per second",
		"--preset b2b --duration 401s":        "last 6m40s",
		"--overload":                          "--overload is for --study",
		"--study --sweep rate=1:2:1":          "no --sweep",
		"--study --out x":                     "no --out",
		"--study --preset b2b --kv-tokens -1": "must not be negative",
		"--load 1e-9 --trace " + late:         "at 1e-09 times its speed",
	} {
		code, _, errs := exec(t, "", append([]string{"sim", "--quiet"}, strings.Fields(args)...)...)
		if code == exitOK || !strings.Contains(errs, want) {
			t.Errorf("sim %s: exit %d, %q; want %q", args, code, errs, want)
		}
	}
}

// What can be named is in the help.
func TestSimHelpNamesWhatThereIs(t *testing.T) {
	_, out, _ := exec(t, "", "sim", "--help")
	for _, p := range policies.All() {
		if !strings.Contains(out, " "+p.Name) {
			t.Errorf("policy %s is not in the help", p.Name)
		}
	}
	for _, p := range sim.Presets() {
		if !strings.Contains(out, "  "+p.Name+" ") {
			t.Errorf("preset %s is not in the help", p.Name)
		}
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "  ") && strings.Contains(line, "priced-spread") && len(line) > 81 {
			t.Errorf("too long: %s", line)
		}
	}
}

// An interrupt ends a sweep soon, and says how far it came.
func TestSimCanBeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"sim", "--sweep", "rate=10:60:10"}, strings.NewReader(""), &out, &errs)
	if code == exitOK || !strings.Contains(errs.String(), "after 0 of 54 runs") || out.Len() > 0 {
		t.Errorf("exit %d, %q, printed %q", code, errs.String(), out.String())
	}
}
