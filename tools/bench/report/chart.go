package report

import (
	"fmt"
	"math"

	"github.com/tautline/tautline/tools/draw"
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

// Inks of the chart.
const (
	dark  = 0x1a1a1a
	soft  = 0x555555
	faint = 0xdddddd
	white = 0xffffff
)

// Chart draws the summary: latency of a chunk (p50 to p99, on a logarithmic axis)
// and CPU of the router per chunk and per request. A panel without figures is left
// out. Paths of tautline stand out by their colour.
func (r *Report) Chart() *draw.Picture {
	p := &draw.Picture{Title: "tautline bench", Width: chartWidth}
	s := r.Settings
	for _, panel := range []panel{{
		title: "A chunk's way from server write to client read",
		note:  fmt.Sprintf("p50, p90 and p99 in ms, logarithmic; %d streams x %.4g chunks/s (%s); %d CPUs", s.Streams, s.Rate, s.Pattern, r.Host.CPUs),
		log:   true,
		marks: []func(Row) Value{
			func(r Row) Value { return scale(r.P50, 1e3) },
			func(r Row) Value { return scale(r.P90, 1e3) },
			func(r Row) Value { return scale(r.P99, 1e3) },
		},
		figure: "%.2f / %.2f / %.2f",
	}, {
		title:  "CPU of the router per chunk",
		note:   "microseconds; no bar: no router",
		marks:  []func(Row) Value{func(r Row) Value { return r.RouterCPU }},
		figure: "%.1f us",
	}, {
		title:  "CPU of the router per request",
		note:   fmt.Sprintf("microseconds; bodies of %d bytes, %d at once", s.BodyBytes, s.Concurrency),
		marks:  []func(Row) Value{func(r Row) Value { return r.RequestCPU }},
		figure: "%.0f us",
	}} {
		p.Height += panel.draw(p, float64(p.Height), r.Summary)
	}
	if p.Height == 0 {
		p.Height = chartRow
		p.Text(16, chartRow/2+4, "nothing was measured", draw.Font{Size: 12, RGB: soft})
	}
	return p
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

// draw adds the panel below y and returns how high it is; 0 when nothing is in it.
func (p panel) draw(to *draw.Picture, y float64, rows []Row) int {
	low, high := math.Inf(1), 0.0
	for _, r := range rows {
		for _, m := range p.marks {
			if v := m(r); v.OK && v.X > 0 {
				low, high = min(low, v.X), max(high, v.X)
			}
		}
	}
	if high == 0 {
		return 0
	}
	a := newAxis(low, high, p.log)
	to.Text(16, y+26, p.title, draw.Font{Size: 16, RGB: dark})
	to.Text(16, y+46, p.note, draw.Font{Size: 12, RGB: soft})
	top, bottom := y+chartTop, y+chartTop+float64(chartRow*len(rows))
	for _, t := range a.ticks {
		x := a.at(t)
		to.Line([]draw.Point{{X: x, Y: top}, {X: x, Y: bottom}}, draw.Stroke{Paint: draw.Solid(faint), Width: 1})
		to.Text(x, bottom+18, fmt.Sprintf("%g", t), draw.Font{Size: 11, RGB: soft, Anchor: draw.Middle})
	}
	for i, r := range rows {
		middle := top + float64(chartRow*i+chartRow/2)
		to.Text(chartLeft-10, middle+4, r.Path, draw.Font{Size: 13, RGB: dark, Anchor: draw.End})
		values := make([]any, len(p.marks))
		whole := true
		for j, m := range p.marks {
			v := m(r)
			values[j] = v.X
			whole = whole && v.OK && v.X > 0
		}
		if !whole {
			to.Text(chartLeft+8, middle+4, "-", draw.Font{Size: 12, RGB: soft})
			continue
		}
		from, end := float64(chartLeft), a.at(values[len(values)-1].(float64))
		if len(values) > 1 {
			from = a.at(values[0].(float64))
		}
		to.Rect(from, middle-9, max(end-from, 2), 18, draw.Solid(colour(r.Path)))
		if len(values) == 3 {
			x := a.at(values[1].(float64))
			to.Line([]draw.Point{{X: x, Y: middle - 9}, {X: x, Y: middle + 9}}, draw.Stroke{Paint: draw.Solid(white), Width: 2})
		}
		to.Text(chartLeft+chartPlot+10, middle+4, fmt.Sprintf(p.figure, values...), draw.Font{Size: 12, RGB: dark})
	}
	return chartTop + chartRow*len(rows) + chartBottom
}

func colour(path string) uint32 {
	switch path {
	case "spliced":
		return 0x0b7a5c
	case "unspliced":
		return 0x6bbfa3
	case "direct":
		return 0x8a8a8a
	}
	return 0xc2703d
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
