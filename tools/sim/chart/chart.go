// Package chart draws line charts and heat maps.
package chart

import (
	"fmt"
	"math"
	"slices"

	"github.com/tautline/tautline/tools/draw"
)

// Point is one value with its range.
type Point struct{ X, Y, Lo, Hi float64 }

// Series is one line. Its points are in the order of X.
type Series struct {
	Name   string
	Points []Point
}

// Mark is a labelled vertical line.
type Mark struct {
	X    float64
	Text string
}

// Lines is a line chart. A band shows the range of each point. On a logarithmic
// axis, values that are not positive are left out.
type Lines struct {
	Title, XLabel, YLabel string
	LogX, LogY            bool
	Series                []Series
	Marks                 []Mark
	Notes                 []string // lines of small print below the legend
}

// The canvas, in pixels.
const (
	width, tall  = 760, 420
	left, right  = 70, 200
	top, bottom  = 44, 52
	markRow      = 15 // height of a row of the marks' labels, above the plot
	letter       = 6  // about how wide one is in a label
	centre       = (left + width - right) / 2
	plotRight    = width - right
	legend       = plotRight + 12
	legendHeight = 20
	noteHeight   = 15
)

// Inks.
const (
	dark    = 0x222222
	soft    = 0x555555
	rule    = 0x888888
	faint   = 0xe4e4e4
	heatInk = 0x0072b2
)

// colours can be told apart by people who see few of them (Okabe and Ito); the
// dashes help those who see none, and where lines lie on one another.
var (
	colours = []uint32{0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x000000, 0x999933}
	dashes  = [][]float64{nil, {6, 3}, {2, 3}, {8, 3, 2, 3}}
)

// Draw draws the chart.
func (l Lines) Draw() *draw.Picture {
	x, y := newAxis(l.LogX, left, plotRight), newAxis(l.LogY, 0, 0)
	for _, s := range l.Series {
		for _, p := range s.Points {
			x.include(p.X)
			y.include(p.Y)
			y.include(p.Lo)
			y.include(p.Hi)
		}
	}
	for _, m := range l.Marks {
		x.include(m.X)
	}
	if !l.LogY {
		y.include(0)
	}
	x.settle()
	y.settle()
	rows := l.labelRows(x)
	ceiling := float64(top)
	if len(rows) > 0 {
		ceiling += markRow * float64(slices.Max(rows)+1)
	}
	height := max(tall, top+bottom+legendHeight*len(l.Series)+noteHeight*len(l.Notes))
	floor := float64(height - bottom)
	y.from, y.to = floor, ceiling

	p := begin(l.Title, height)
	frame(p, x, y, floor)
	labels(p, l.XLabel, l.YLabel, height)
	for i, m := range l.Marks {
		if at, ok := x.place(m.X); ok {
			base := top + markRow*float64(rows[i])
			p.Line([]draw.Point{{X: at, Y: base + 4}, {X: at, Y: floor}}, draw.Stroke{Paint: draw.Solid(rule), Width: 1, Dash: []float64{4, 4}})
			p.Text(l.labelAt(i, at), base, m.Text, draw.Font{Size: 11, RGB: soft, Anchor: draw.Middle})
		}
	}
	for i, s := range l.Series {
		band(p, s, x, y, ink(i).RGB)
	}
	for _, i := range l.unbrokenFirst() {
		s, stroke := l.Series[i], ink(i)
		var points []draw.Point
		for _, v := range s.Points {
			px, okX := x.place(v.X)
			py, okY := y.place(v.Y)
			if okX && okY {
				points = append(points, draw.Point{X: px, Y: py})
			}
		}
		if len(points) > 1 {
			p.Line(slices.Clone(points), stroke)
		}
		for _, at := range points {
			p.Dot(at.X, at.Y, 2.6, stroke.Paint)
		}
		ly := float64(top + 10 + legendHeight*i)
		p.Line([]draw.Point{{X: legend, Y: ly}, {X: legend + 24, Y: ly}}, stroke)
		p.Text(legend+30, ly+4, s.Name, draw.Font{Size: 12, RGB: dark})
	}
	for i, note := range l.Notes {
		p.Text(legend, float64(top+20+legendHeight*len(l.Series)+noteHeight*i), note, draw.Font{Size: 11, RGB: soft})
	}
	return p
}

// ink is how series i is drawn.
func ink(i int) draw.Stroke {
	return draw.Stroke{Paint: draw.Solid(colours[i%len(colours)]), Width: 2, Dash: dashes[dashOf(i)]}
}

func dashOf(i int) int { return (i + i/len(colours)) % len(dashes) }

// unbrokenFirst is the order in which series are drawn: what lies below shows in the
// gaps of what lies on it.
func (l Lines) unbrokenFirst() []int {
	order := make([]int, len(l.Series))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return dashOf(a) - dashOf(b) })
	return order
}

// labelRows gives each mark's label the first row above the plot in which it
// overlaps none before it.
func (l Lines) labelRows(x axis) []int {
	rows := make([]int, len(l.Marks))
	ends := map[int][][2]float64{}
	for i, m := range l.Marks {
		at, ok := x.place(m.X)
		if !ok {
			continue
		}
		middle, half := l.labelAt(i, at), float64(letter*len(m.Text))/2
		for slices.ContainsFunc(ends[rows[i]], func(e [2]float64) bool { return middle-half < e[1]+letter && middle+half > e[0]-letter }) {
			rows[i]++
		}
		ends[rows[i]] = append(ends[rows[i]], [2]float64{middle - half, middle + half})
	}
	return rows
}

// labelAt is the middle of a mark's label: over its line, unless that would lead
// out of the plot.
func (l Lines) labelAt(i int, at float64) float64 {
	half := float64(letter*len(l.Marks[i].Text)) / 2
	return min(max(at, left+half), plotRight-half)
}

// band draws the range of the points.
func band(p *draw.Picture, s Series, x, y axis, rgb uint32) {
	var upper, lower []draw.Point
	wide := false
	for _, v := range s.Points {
		px, okX := x.place(v.X)
		lo, okLo := y.place(v.Lo)
		hi, okHi := y.place(v.Hi)
		if !okX || !okLo || !okHi {
			continue
		}
		wide = wide || lo-hi > 1
		upper = append(upper, draw.Point{X: px, Y: hi})
		lower = append(lower, draw.Point{X: px, Y: lo})
	}
	if wide && len(upper) > 1 {
		slices.Reverse(lower)
		p.Polygon(append(upper, lower...), draw.Paint{RGB: rgb, Opacity: 0.13})
	}
}

// Heat is a heat map: Cells[column][row], columns Step apart.
type Heat struct {
	Title, XLabel, YLabel, Unit string
	Step                        float64
	Cells                       [][]float32
}

// Draw draws the heat map. The darkest cell is the largest value of all.
func (h Heat) Draw() *draw.Picture {
	rows, most := 0, float32(0)
	for _, c := range h.Cells {
		rows = max(rows, len(c))
		for _, v := range c {
			most = max(most, v)
		}
	}
	const row, shades = 18, 5
	height := top + bottom + row*max(rows, shades)
	p := begin(h.Title, height)
	labels(p, h.XLabel, h.YLabel, height)
	shade := func(share float64) draw.Paint { return draw.Paint{RGB: heatInk, Opacity: math.Sqrt(share)} }
	cell := float64(plotRight-left) / float64(max(len(h.Cells), 1))
	edge := func(i int) float64 { return math.Round(draw.Scale*(left+cell*float64(i))) / draw.Scale } // of a pixel, or hairlines show
	for i, c := range h.Cells {
		for k, v := range c {
			if v > 0 {
				p.Rect(edge(i), float64(top+row*k), edge(i+1)-edge(i), row-1, shade(float64(v)/float64(most)))
			}
		}
	}
	small := draw.Font{Size: 11, RGB: dark}
	for k := range rows {
		p.Text(left-8, float64(top+row*k+13), fmt.Sprint(k), draw.Font{Size: 11, RGB: dark, Anchor: draw.End})
	}
	x := newAxis(false, left, plotRight)
	x.include(0)
	x.include(h.Step * float64(len(h.Cells)))
	x.settle()
	xTicks(p, x, float64(height-bottom))
	for i := range shades {
		share, y := float64(i+1)/shades, float64(top+row*i)
		p.Rect(legend, y, 20, row-1, shade(share))
		p.Text(legend+26, y+13, number(math.Round(share*float64(most)))+" "+h.Unit, small)
	}
	return p
}

func begin(title string, height int) *draw.Picture {
	p := &draw.Picture{Title: title, Width: width, Height: height}
	p.Text(left, 24, title, draw.Font{Size: 15, Bold: true, RGB: dark})
	return p
}

func labels(p *draw.Picture, xLabel, yLabel string, height int) {
	p.Text(centre, float64(height-14), xLabel, draw.Font{Size: 12, RGB: dark, Anchor: draw.Middle})
	p.Text(16, float64(top+height-bottom)/2, yLabel, draw.Font{Size: 12, RGB: dark, Anchor: draw.Middle, Turn: -1})
}

// frame draws the grid and the ticks of both axes.
func frame(p *draw.Picture, x, y axis, floor float64) {
	for _, t := range y.ticks() {
		if at, ok := y.place(t); ok {
			p.Line([]draw.Point{{X: left, Y: at}, {X: plotRight, Y: at}}, draw.Stroke{Paint: draw.Solid(faint), Width: 1})
			p.Text(left-8, at+4, number(t), draw.Font{Size: 11, RGB: dark, Anchor: draw.End})
		}
	}
	xTicks(p, x, floor)
	p.Line([]draw.Point{{X: left, Y: floor}, {X: plotRight, Y: floor}}, draw.Stroke{Paint: draw.Solid(rule), Width: 1})
}

func xTicks(p *draw.Picture, x axis, floor float64) {
	for _, t := range x.ticks() {
		if at, ok := x.place(t); ok {
			p.Line([]draw.Point{{X: at, Y: floor}, {X: at, Y: floor + 5}}, draw.Stroke{Paint: draw.Solid(rule), Width: 1})
			p.Text(at, floor+18, number(t), draw.Font{Size: 11, RGB: dark, Anchor: draw.Middle})
		}
	}
}
