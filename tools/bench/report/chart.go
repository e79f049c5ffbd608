package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Measures of the chart, in pixels.
const (
	chartLeft   = 110 // room for the paths' names
	chartPlot   = 560
	chartRight  = 180 // room for the figures
	chartRow    = 34
	chartTop    = 64
	chartBottom = 54
	chartWidth  = chartLeft + chartPlot + chartRight
)

const chartFont = `font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"`

// Chart draws the summary as an SVG: latency of a chunk (p50 to p99, on a
// logarithmic axis) and CPU of the router per chunk and per request. A panel
// without figures is left out. Paths of tautline stand out by their colour.
func (r *Report) Chart(w io.Writer) error {
	var panels []string
	y := 0
	add := func(p panel) {
		if text, height := p.draw(y, r.Summary); height > 0 {
			panels = append(panels, text)
			y += height
		}
	}
	s := r.Settings
	add(panel{
		title: "A chunk's way from server write to client read",
		note:  fmt.Sprintf("p50, p90 and p99 in ms, logarithmic; %d streams x %.4g chunks/s (%s); %d CPUs", s.Streams, s.Rate, s.Pattern, r.Host.CPUs),
		log:   true,
		marks: []func(Row) Value{
			func(r Row) Value { return scale(r.P50, 1e3) },
			func(r Row) Value { return scale(r.P90, 1e3) },
			func(r Row) Value { return scale(r.P99, 1e3) },
		},
		figure: "%.2f / %.2f / %.2f",
	})
	add(panel{
		title:  "CPU of the router per chunk",
		note:   "microseconds; no bar: no router",
		marks:  []func(Row) Value{func(r Row) Value { return r.RouterCPU }},
		figure: "%.1f us",
	})
	add(panel{
		title:  "CPU of the router per request",
		note:   fmt.Sprintf("microseconds; bodies of %d bytes, %d at once", s.BodyBytes, s.Concurrency),
		marks:  []func(Row) Value{func(r Row) Value { return r.RequestCPU }},
		figure: "%.0f us",
	})
	_, err := fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n<title>tautline bench</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n%s</svg>\n",
		chartWidth, y, chartWidth, y, strings.Join(panels, ""))
	return err
}

func scale(v Value, by float64) Value {
	v.X /= by
	return v
}

// panel is one diagram: a row for each path. One mark is a bar from zero, three
// are a box from the first to the last with a line at the second.
type panel struct {
	title, note string
	log         bool
	marks       []func(Row) Value
	figure      string // format of the marks
}

// draw returns the panel at height y and how high it is; 0 when nothing is in it.
func (p panel) draw(y int, rows []Row) (string, int) {
	low, high := math.Inf(1), 0.0
	for _, r := range rows {
		for _, m := range p.marks {
			if v := m(r); v.OK && v.X > 0 {
				low, high = min(low, v.X), max(high, v.X)
			}
		}
	}
	if high == 0 {
		return "", 0
	}
	a := newAxis(low, high, p.log)
	var b strings.Builder
	text := func(x, y float64, size int, anchor, colour, s string) {
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\" %s font-size=\"%d\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, chartFont, size, anchor, colour, html.EscapeString(s))
	}
	text(16, float64(y+26), 16, "start", "#1a1a1a", p.title)
	text(16, float64(y+46), 12, "start", "#555555", p.note)
	top, bottom := y+chartTop, y+chartTop+chartRow*len(rows)
	for _, t := range a.ticks {
		x := a.at(t)
		fmt.Fprintf(&b, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#dddddd\"/>\n", x, top, x, bottom)
		text(x, float64(bottom+18), 11, "middle", "#555555", fmt.Sprintf("%g", t))
	}
	for i, r := range rows {
		middle := float64(top + chartRow*i + chartRow/2)
		text(chartLeft-10, middle+4, 13, "end", "#1a1a1a", r.Path)
		values := make([]any, len(p.marks))
		whole := true
		for j, m := range p.marks {
			v := m(r)
			values[j] = v.X
			whole = whole && v.OK && v.X > 0
		}
		if !whole {
			text(chartLeft+8, middle+4, 12, "start", "#555555", "-")
			continue
		}
		from, to := float64(chartLeft), a.at(values[len(values)-1].(float64))
		if len(values) > 1 {
			from = a.at(values[0].(float64))
		}
		fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"18\" rx=\"2\" fill=\"%s\"/>\n", from, middle-9, max(to-from, 2), colour(r.Path))
		if len(values) == 3 {
			x := a.at(values[1].(float64))
			fmt.Fprintf(&b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ffffff\" stroke-width=\"2\"/>\n", x, middle-9, x, middle+9)
		}
		text(chartLeft+chartPlot+10, middle+4, 12, "start", "#1a1a1a", fmt.Sprintf(p.figure, values...))
	}
	return b.String(), chartTop + chartRow*len(rows) + chartBottom
}

func colour(path string) string {
	switch path {
	case "spliced":
		return "#0b7a5c"
	case "unspliced":
		return "#6bbfa3"
	case "direct":
		return "#8a8a8a"
	}
	return "#c2703d"
}

// axis maps figures to pixels.
type axis struct {
	log       bool
	low, high float64
	ticks     []float64
}

// newAxis spans low to high with round ticks; a linear axis begins at 0.
func newAxis(low, high float64, log bool) axis {
	if log {
		a := axis{log: true, low: math.Pow(10, math.Floor(math.Log10(low))), high: math.Pow(10, math.Ceil(math.Log10(high)))}
		if a.high <= a.low {
			a.high = a.low * 10
		}
		for e := math.Round(math.Log10(a.low)); e <= math.Round(math.Log10(a.high)); e++ {
			a.ticks = append(a.ticks, math.Pow(10, e))
		}
		return a
	}
	step := math.Pow(10, math.Floor(math.Log10(high/4)))
	for _, f := range []float64{1, 2, 5, 10} {
		if high/(step*f) <= 6 {
			step *= f
			break
		}
	}
	a := axis{high: step * math.Ceil(high/step)}
	for i := 0.0; i*step <= a.high*1.0001; i++ {
		a.ticks = append(a.ticks, i*step)
	}
	return a
}

func (a axis) at(v float64) float64 {
	share := (v - a.low) / (a.high - a.low)
	if a.log {
		share = math.Log(v/a.low) / math.Log(a.high/a.low)
	}
	return chartLeft + chartPlot*min(max(share, 0), 1)
}
