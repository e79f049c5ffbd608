package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/tautline/tautline/tools/sim/chart"
)

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

// Table writes the rows, and the checks if there are any, as text.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tpolicy\tp50 s\tp90 s\t(range)\tdone/s\thit %%\tunfinished\trefused\t\n", r.Axis)
	for i := range r.Rows {
		row := &r.Rows[i]
		p := row.Of(p90)
		times := fmt.Sprintf("%.2f\t%.2f\t%.2f to %.2f", row.Of(p50).Median, p.Median, p.Min, p.Max)
		if row.Of(func(r *Result) float64 { return float64(r.Arrived - r.Refused) }).Max == 0 {
			times = "-\t-\t-" // nobody was taken, so nobody waited
		}
		fmt.Fprintf(t, "%v\t%s\t%s\t%.2f\t%.1f\t%.0f\t%.0f\t\n", row.X, row.Policy, times,
			row.Of(throughput).Median, 100*row.Of(hitTokens).Median,
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

// figure is a chart and the name of its files.
type figure struct {
	name  string
	chart chart.Chart
}

// lines are the charts of the rows, over X.
func (r *Report) lines(marks []chart.Mark) []figure {
	draw := func(name, title, y string, log bool, value func(*Result) float64, scale float64) figure {
		l := chart.Lines{Title: r.Preset + ": " + title, XLabel: r.Axis, YLabel: y, LogY: log, Marks: marks}
		if r.Seeds > 1 {
			l.Notes = []string{fmt.Sprintf("line: median of %d runs", r.Seeds), "band: their range"}
		}
		at := map[string]int{}
		for i := range r.Rows {
			row := &r.Rows[i]
			k, there := at[row.Policy]
			if !there {
				k = len(l.Series)
				at[row.Policy] = k
				l.Series = append(l.Series, chart.Series{Name: row.Policy})
			}
			s := row.Of(value)
			l.Series[k].Points = append(l.Series[k].Points, chart.Point{X: row.X, Y: scale * s.Median, Lo: scale * s.Min, Hi: scale * s.Max})
		}
		return figure{name, l}
	}
	return []figure{
		draw("p90", "p90 time to first token", "seconds", true, p90, 1),
		draw("hit", "prompt tokens found in the cache", "per cent", false, hitTokens, 100),
		draw("throughput", "answers ended", "per second", false, throughput, 1),
	}
}

// save writes the page, each chart as SVG and PNG, and the data.
func (r *Report) save(dir string, figures []figure) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
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
	var charts []chart.Chart
	for _, f := range figures {
		picture := f.chart.Draw()
		create(f.name+".svg", picture.SVG)
		create(f.name+".png", picture.PNG)
		charts = append(charts, f.chart)
	}
	create("report.html", func(w io.Writer) error {
		return chart.Page(w, "tautline sim: "+r.Preset, []string{table.String()}, charts)
	})
	create("results.json", func(w io.Writer) error { return json.NewEncoder(w).Encode(r) })
	return err
}
