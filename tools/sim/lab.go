package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tautline/tautline/tools/sim/chart"
	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/tools/sim/traffic"
)

// Options are what a user can ask of the lab. Zero values mean the defaults
// named here.
type Options struct {
	Preset   string    // "" = seed, or with a trace b2b
	Trace    string    // file of JSON lines, instead of the preset's traffic; see traffic.ReadTrace
	Policies []string  // none = DefaultPolicies of the preset
	Loads    []float64 // load points; none = the preset's
	Sweep    string    // "tau=from:to:step" at the highest load point (by default at the knee), or "rate=from:to:step"
	Seeds    int       // 0 = 3
	Workers  int       // 0 = all processors
	Conditions

	Journal  string    // file that keeps finished runs, see Journal; "" = none
	Out      string    // directory for report.html, charts as SVG and PNG, and results.json; "" = none
	Format   string    // "table" (also "") or "json"
	Progress io.Writer // a bar is drawn here; nil = none
}

// DefaultPolicies are compared when none are named: on the seed's toy the three
// of the article.
func DefaultPolicies(preset string) []string {
	if preset == "seed" {
		return []string{"round-robin", "always-sticky", "sticky-absolute"}
	}
	return []string{
		"round-robin", "least-requests", "bounded-hash", "cache-aware", "weighted-blend", "queue-priced",
		"always-sticky", "sticky-until-saturated", "priced",
	}
}

// Lab runs what the options ask for, writes the table or JSON to out and the
// charts to Options.Out. The seed's preset without a sweep also judges its
// checks. Errors of the options name the option and are OptionErrors.
func Lab(ctx context.Context, o Options, out io.Writer) (*Report, error) {
	plan, err := o.plan()
	if err != nil {
		return nil, ofOptions(err)
	}
	bar := newBar(o.Progress)
	defer bar.end()
	rows, err := journaled(ctx, o.Journal, plan.settings, plan.points, plan.seeds, o.Workers, bar)
	if err != nil {
		return nil, err
	}
	report := &Report{Preset: plan.name, Axis: plan.axis, Seeds: plan.seeds, Rows: rows}
	if plan.checks {
		if report.Checks, err = SeedChecks(ctx, plan.seeds, o.Workers, bar.draw); err != nil {
			return nil, err
		}
	}
	bar.end()
	if o.Out != "" {
		heats, err := plan.series(ctx)
		if err != nil {
			return nil, err
		}
		if err := report.save(o.Out, append(report.lines(plan.marks), heats...)); err != nil {
			return nil, err
		}
	}
	if o.Format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", " ")
		return report, e.Encode(report)
	}
	return report, report.Table(out)
}

// plan is options made ready to run.
type plan struct {
	name   string
	axis   string
	points []Point
	seeds  int
	checks bool
	marks  []chart.Mark

	settings string // for the journal
}

func (o *Options) plan() (*plan, error) {
	if o.Format != "" && o.Format != "table" && o.Format != "json" {
		return nil, fmt.Errorf("format %q: must be table or json", o.Format)
	}
	if o.Preset == "" {
		o.Preset = "seed"
		if o.Trace != "" {
			o.Preset = "b2b" // its fleet is ten like engines
		}
	}
	preset, err := FindPreset(o.Preset)
	if err != nil {
		return nil, err
	}
	names := o.Policies
	if len(names) == 0 {
		names = DefaultPolicies(preset.Name)
	}
	chosen, err := policies.Find(names)
	if err != nil {
		return nil, err
	}
	p := &plan{name: preset.Name, axis: preset.Unit, seeds: o.Seeds}
	content := "" // of the trace: another under the same name gives other results
	defer func() {
		p.settings = fmt.Sprintf("%s, %s, %s %s, %s", preset.Name, p.axis, o.Trace, content, o.Conditions)
	}()
	if p.seeds == 0 {
		p.seeds = 3
	}
	if err := seedsValid(p.seeds); err != nil {
		return nil, err
	}
	if err := o.Conditions.valid(); err != nil {
		return nil, err
	}
	loads := o.Loads
	if len(loads) == 0 {
		loads = preset.Loads
	}
	if o.Trace != "" && len(o.Loads) == 0 {
		loads = []float64{1}
	}
	what, values, err := parseSweep(o.Sweep)
	if err != nil {
		return nil, err
	}
	if what == "rate" {
		if len(o.Loads) > 0 {
			return nil, fmt.Errorf("sweep %q: it says the load points, and so does %v", o.Sweep, o.Loads)
		}
		loads = values
	}
	loads = slices.Sorted(slices.Values(loads)) // charts draw a line from each to the next
	for i, l := range loads {
		if !(l > 0 && l <= maxLoad) {
			return nil, fmt.Errorf("load %v: must be positive, and no more than %.0f", l, maxLoad)
		}
		if i > 0 && l == loads[i-1] {
			return nil, fmt.Errorf("load %v: named twice", l)
		}
	}
	if preset.Whole && o.Trace == "" {
		for _, l := range loads {
			if l != math.Trunc(l) {
				return nil, fmt.Errorf("load %v: %s counts %s", l, preset.Name, preset.Unit)
			}
		}
	}
	var trace *traffic.Trace
	if o.Trace != "" {
		if trace, content, err = readTrace(o.Trace); err != nil {
			return nil, err
		}
		if preset.Name == "seed" {
			return nil, errors.New("the seed's toy cannot serve a trace: it knows whole prefixes only")
		}
		p.name, p.axis = "trace", "speed"
	}
	scenario := func(load float64) Scenario {
		sc := preset.At(load)
		e := o.change(&sc, trace, load)
		for i := 0; e == nil && i < len(chosen); i++ {
			e = suits(&sc, chosen[i])
		}
		if err == nil {
			err = e
		}
		return sc
	}
	switch what {
	case "tau":
		load := loads[len(loads)-1]
		if len(o.Loads) == 0 && o.Trace == "" {
			load = preset.Knee
		}
		p.axis = "tau, tokens"
		p.name = fmt.Sprintf("%s at %v %s", p.name, load, preset.Unit)
		p.marks = []chart.Mark{{X: policies.Tau, Text: "14 s: 286,720"}}
		if preset.Name == "seed" {
			p.marks = append(p.marks, chart.Mark{X: seedPrefix, Text: "break-even: 55,000"})
		}
		some := false
		for _, c := range chosen {
			for _, tau := range values {
				withTau, err := policies.WithTau(c.Name, tau)
				if err == nil {
					some = true
					p.points = append(p.points, Point{tau, scenario(load), withTau})
				}
			}
		}
		if !some {
			return nil, fmt.Errorf("sweep %q: no policy of %v has a tau", o.Sweep, names)
		}
		if err != nil {
			return nil, err
		}
		return p, nil
	case "":
		p.checks = preset.Name == "seed" && o.Trace == "" && len(o.Loads) == 0 && len(o.Policies) == 0 && o.plain()
	}
	for _, c := range chosen {
		for _, l := range loads {
			p.points = append(p.points, Point{l, scenario(l), c})
		}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// change applies the options to a scenario.
func (o *Options) change(sc *Scenario, trace *traffic.Trace, load float64) error {
	if trace != nil {
		sc.Name, sc.Load, sc.LoadUnit = "trace", load, "x its speed"
		sc.Traffic = func(uint64) traffic.Source { return trace.Replay(load) }
		length := trace.Length().Seconds() / load
		if length > maxReplay {
			return fmt.Errorf("trace: at %v times its speed it lasts %.3g s; at most %.0g", load, length, maxReplay)
		}
		sc.Until = Instant(length*1e9) + time.Second
		sc.Warmup = min(sc.Warmup, sc.Until/5)
	}
	return o.apply(sc)
}

// Bounds that keep a slip from filling the memory.
const (
	maxLoad   = 1e6
	maxSeeds  = 10000
	maxReplay = 1e7 // seconds
)

func seedsValid(n int) error {
	if n < 0 || n > maxSeeds {
		return fmt.Errorf("seeds %d: must not be negative, nor more than %d", n, maxSeeds)
	}
	return nil
}

// readTrace returns the trace and what tells its content from any other.
func readTrace(path string) (*traffic.Trace, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", traceError{fmt.Errorf("trace: %w", err)}
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	t, err := traffic.ReadTrace(io.TeeReader(f, sum))
	if err != nil {
		return nil, "", traceError{fmt.Errorf("trace %s: %w", path, err)}
	}
	return t, hex.EncodeToString(sum.Sum(nil)), nil
}

// parseSweep reads "what=from:to:step".
func parseSweep(s string) (what string, values []float64, err error) {
	if s == "" {
		return "", nil, nil
	}
	bad := func(why string) (string, []float64, error) {
		return "", nil, fmt.Errorf("sweep %q: %s; want tau=from:to:step or rate=from:to:step", s, why)
	}
	what, bounds, ok := strings.Cut(s, "=")
	if !ok || what != "tau" && what != "rate" {
		return bad("neither tau nor rate")
	}
	parts := strings.Split(bounds, ":")
	if len(parts) != 3 {
		return bad("not three numbers")
	}
	var n [3]float64
	for i, p := range parts {
		if n[i], err = strconv.ParseFloat(p, 64); err != nil || !(n[i] >= 0) || math.IsInf(n[i], 0) {
			return bad("not a number of 0 or more: " + p)
		}
	}
	from, to, step := n[0], n[1], n[2]
	if step <= 0 || to < from || (to-from)/step > 10000 {
		return bad("from, to and step do not make 1 to 10,000 points")
	}
	if what == "rate" && from == 0 {
		return bad("a rate must be positive")
	}
	for i := 0; from+float64(i)*step <= to*(1+1e-9); i++ {
		values = append(values, from+float64(i)*step)
	}
	return what, values, nil
}

// seriesOf is how many policies have their backends' load drawn: those named first.
const seriesOf = 4

// series runs the most loaded point of the first policies once more, to see the
// load of each backend over time. Of equally loaded ones it is the first.
func (p *plan) series(ctx context.Context) (heats []figure, err error) {
	var most []*Point
	at := map[string]int{}
	for i := range p.points {
		pt := &p.points[i]
		k, there := at[pt.Policy.Name]
		switch {
		case !there && len(most) < seriesOf:
			at[pt.Policy.Name] = len(most)
			most = append(most, pt)
		case there && pt.Scenario.Load > most[k].Scenario.Load:
			most[k] = pt
		}
	}
	for _, pt := range most {
		sc := pt.Scenario
		sc.Series = sc.Until / 120
		res, err := Run(ctx, sc, pt.Policy, 1)
		if err != nil {
			return nil, err
		}
		where := fmt.Sprintf("%s at %v %s", sc.Name, sc.Load, sc.LoadUnit)
		if pt.X != sc.Load {
			where += fmt.Sprintf(", tau %.0f", pt.X)
		}
		heats = append(heats, figure{"load-" + pt.Policy.Name, chart.Heat{
			Title:  where + ": requests in each backend, " + pt.Policy.Name,
			XLabel: "seconds", YLabel: "backend", Unit: "requests", Step: res.Every, Cells: res.Loads,
		}})
	}
	return heats, nil
}
