package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
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
	Sweep    string    // "tau=from:to:step" at the last load point, or "rate=from:to:step"
	Seeds    int       // 0 = 3
	Workers  int       // 0 = all processors
	Conditions

	Journal  string    // file that keeps finished runs, see Journal; "" = none
	Out      string    // directory for report.html, SVG charts and results.json; "" = none
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

// Report is what the lab found.
type Report struct {
	Preset string  `json:"preset"`
	Axis   string  `json:"axis"` // what X of the rows is
	Seeds  int     `json:"seeds"`
	Rows   []Row   `json:"rows"`
	Checks []Check `json:"checks,omitempty"`
}

// Failed says whether a check did not pass.
func (r *Report) Failed() bool {
	for _, c := range r.Checks {
		if !c.Passed {
			return true
		}
	}
	return false
}

// Lab runs what the options ask for, writes the table or JSON to out and the
// charts to Options.Out. The seed's preset without a sweep also judges its
// checks. Errors of the options name the option.
func Lab(ctx context.Context, o Options, out io.Writer) (*Report, error) {
	plan, err := o.plan()
	if err != nil {
		return nil, err
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
		series, err := plan.series(ctx)
		if err != nil {
			return nil, err
		}
		if err := report.save(o.Out, series, plan.marks); err != nil {
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
	defer func() { p.settings = fmt.Sprintf("%s, %s, %s", p.axis, o.Trace, o.Conditions) }()
	if p.seeds == 0 {
		p.seeds = 3
	}
	if p.seeds < 0 {
		return nil, fmt.Errorf("seeds %d: must not be negative", p.seeds)
	}
	if err := o.Conditions.valid(); err != nil {
		return nil, err
	}
	loads := o.Loads
	if len(loads) == 0 {
		loads = preset.Loads
	}
	for _, l := range loads {
		if !(l > 0) || math.IsInf(l, 0) {
			return nil, fmt.Errorf("load %v: must be positive", l)
		}
	}
	what, values, err := parseSweep(o.Sweep)
	if err != nil {
		return nil, err
	}
	if what == "rate" {
		loads = values
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
		if trace, err = readTrace(o.Trace); err != nil {
			return nil, err
		}
		if len(o.Loads) == 0 {
			loads = []float64{1}
		}
		if preset.Name == "seed" {
			return nil, errors.New("the seed's toy cannot serve a trace: it knows whole prefixes only")
		}
		p.name, p.axis = "trace", "speed"
	}
	scenario := func(load float64) Scenario {
		sc := preset.At(load)
		if e := o.change(&sc, trace, load); err == nil {
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
		sc.Name, sc.Traffic = "trace", func(uint64) traffic.Source { return trace.Replay(load) }
		sc.Until = Instant(float64(trace.Length())/load) + time.Second
		sc.Warmup = min(sc.Warmup, sc.Until/5)
	}
	return o.apply(sc)
}

func readTrace(path string) (*traffic.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer func() { _ = f.Close() }()
	t, err := traffic.ReadTrace(f)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", path, err)
	}
	return t, nil
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

// series runs the most loaded points of every policy once more to see the load
// of each backend over time.
func (p *plan) series(ctx context.Context) (map[string]Result, error) {
	out := map[string]Result{}
	for _, pt := range p.points {
		if len(out) >= 4 && out[pt.Policy.Name].Policy == "" {
			continue
		}
		if old, there := out[pt.Policy.Name]; there && old.Load >= pt.Scenario.Load {
			continue
		}
		out[pt.Policy.Name] = Result{Policy: pt.Policy.Name, Load: pt.Scenario.Load}
	}
	for _, pt := range p.points {
		if r, there := out[pt.Policy.Name]; !there || r.Loads != nil || r.Load != pt.Scenario.Load {
			continue
		}
		sc := pt.Scenario
		sc.Series = sc.Until / 120
		res, err := Run(ctx, sc, pt.Policy, 1)
		if err != nil {
			return nil, err
		}
		out[pt.Policy.Name] = res
	}
	return out, nil
}

// Table writes the rows, and the checks if there are any, as text.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tpolicy\tp50 s\tp90 s\t(range)\tdone/s\thit %%\tunfinished\trefused\t\n", r.Axis)
	for i := range r.Rows {
		row := &r.Rows[i]
		p := row.Of(p90)
		fmt.Fprintf(t, "%v\t%s\t%.2f\t%.2f\t%.2f to %.2f\t%.2f\t%.1f\t%.0f\t%.0f\t\n", row.X, row.Policy, row.Of(p50).Median,
			p.Median, p.Min, p.Max, row.Of(throughput).Median, 100*row.Of(hitTokens).Median,
			row.Of(func(r *Result) float64 { return float64(r.Unfinished) }).Median, row.Of(func(r *Result) float64 { return float64(r.Refused) }).Median)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Checks) == 0 {
		return nil
	}
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nthe article's statements\twant\tgot\t\n")
	for _, c := range r.Checks {
		verdict := "pass"
		if !c.Passed {
			verdict = "FAIL"
		}
		fmt.Fprintf(t, "%s  %s\t%s\t%s\t\n", verdict, c.Name, c.Want, c.Got)
	}
	return t.Flush()
}

// save writes the page, its charts and the data.
func (r *Report) save(dir string, series map[string]Result, marks []chart.Mark) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lines := func(title, y string, log bool, figure func(*Result) float64, scale float64) chart.Lines {
		l := chart.Lines{Title: title, XLabel: r.Axis, YLabel: y, LogY: log, Marks: marks}
		at := map[string]int{}
		for i := range r.Rows {
			row := &r.Rows[i]
			k, there := at[row.Policy]
			if !there {
				k = len(l.Series)
				at[row.Policy] = k
				l.Series = append(l.Series, chart.Series{Name: row.Policy})
			}
			s := row.Of(figure)
			l.Series[k].Points = append(l.Series[k].Points, chart.Point{X: row.X, Y: scale * s.Median, Lo: scale * s.Min, Hi: scale * s.Max})
		}
		return l
	}
	names := []string{"p90", "hit", "throughput"}
	drawings := []chart.Drawing{
		lines(r.Preset+": p90 time to first token", "seconds", true, p90, 1),
		lines(r.Preset+": prompt tokens found in the cache", "per cent", false, hitTokens, 100),
		lines(r.Preset+": answers ended", "per second", false, throughput, 1),
	}
	for i := range r.Rows {
		res, there := series[r.Rows[i].Policy]
		if !there {
			continue
		}
		delete(series, r.Rows[i].Policy)
		names = append(names, "load-"+res.Policy)
		drawings = append(drawings, chart.Heat{
			Title:  fmt.Sprintf("%s at %v: requests in each backend, %s", r.Preset, res.Load, res.Policy),
			XLabel: "seconds", YLabel: "backend", Unit: "requests", Step: res.Every, Cells: res.Loads,
		})
	}
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		return err
	}
	var err error
	create := func(name string, fill func(io.Writer) error) {
		if err != nil {
			return
		}
		f, e := os.Create(filepath.Join(dir, name))
		if e != nil {
			err = e
			return
		}
		err = fill(f)
		if e := f.Close(); err == nil {
			err = e
		}
	}
	create("report.html", func(w io.Writer) error {
		return chart.Page(w, "tautline sim: "+r.Preset, []string{table.String()}, drawings)
	})
	create("results.json", func(w io.Writer) error { return json.NewEncoder(w).Encode(r) })
	for i, d := range drawings {
		create(names[i]+".svg", d.SVG)
	}
	return err
}

// bar is a progress bar of one line.
type bar struct {
	w    io.Writer
	last int
}

func newBar(w io.Writer) *bar { return &bar{w, -1} }

func (b *bar) draw(finished, all int) {
	if b.w == nil {
		return
	}
	const cells = 40
	n := finished * cells / max(all, 1)
	if n == b.last && finished != all {
		return
	}
	b.last = n
	fmt.Fprintf(b.w, "\r[%s%s] %d of %d runs", strings.Repeat("#", n), strings.Repeat(".", cells-n), finished, all)
}

// end leaves the bar's line, once.
func (b *bar) end() {
	if b.w != nil {
		fmt.Fprintln(b.w)
		b.w = nil
	}
}
