// Package chart draws line charts and heat maps as SVG, and puts them on one
// HTML page that needs nothing else: no script, no font, no style sheet.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
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
}

// The canvas, in pixels.
const (
	width, height = 760, 420
	left, right   = 70, 200
	top, bottom   = 44, 52
)

// colours can be told apart by people who see few of them (Okabe and Ito); the
// dashes help those who see none.
var colours = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933"}
var dashes = []string{"", "6 3", "2 3", "8 3 2 3"}

// SVG writes the chart.
func (l Lines) SVG(w io.Writer) error {
	var b bytes.Buffer
	x, y := newAxis(l.LogX, left, width-right), newAxis(l.LogY, height-bottom, top)
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
	begin(&b, l.Title, height)
	frame(&b, x, y, l.XLabel, l.YLabel)
	for _, m := range l.Marks {
		if at, ok := x.place(m.X); ok {
			fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#888" stroke-dasharray="4 4"/>`, at, top, at, height-bottom)
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" font-size="11" fill="#555" transform="rotate(90 %.1f %d)">%s</text>`, at+4, top+6, at+4, top+6, html.EscapeString(m.Text))
		}
	}
	for i, s := range l.Series {
		colour, dash := colours[i%len(colours)], dashes[i/len(colours)%len(dashes)]
		band(&b, s, x, y, colour)
		path, dots := "", ""
		for _, p := range s.Points {
			px, okX := x.place(p.X)
			py, okY := y.place(p.Y)
			if !okX || !okY {
				continue
			}
			verb := "L"
			if path == "" {
				verb = "M"
			}
			path += fmt.Sprintf("%s%.1f %.1f", verb, px, py)
			dots += fmt.Sprintf(`<circle cx="%.1f" cy="%.1f" r="2.6" fill="%s"/>`, px, py, colour)
		}
		if path != "" {
			fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>%s`, path, colour, dash, dots)
		}
		ly := top + 10 + 20*i
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, width-right+12, ly, width-right+36, ly, colour, dash)
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="12">%s</text>`, width-right+42, ly+4, html.EscapeString(s.Name))
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// band draws the range of the points.
func band(b *bytes.Buffer, s Series, x, y axis, colour string) {
	var upper, lower []string
	wide := false
	for _, p := range s.Points {
		px, okX := x.place(p.X)
		lo, okLo := y.place(p.Lo)
		hi, okHi := y.place(p.Hi)
		if !okX || !okLo || !okHi {
			continue
		}
		wide = wide || lo-hi > 1
		upper = append(upper, fmt.Sprintf("%.1f,%.1f", px, hi))
		lower = append([]string{fmt.Sprintf("%.1f,%.1f", px, lo)}, lower...)
	}
	if wide {
		fmt.Fprintf(b, `<polygon points="%s" fill="%s" fill-opacity="0.13"/>`, strings.Join(append(upper, lower...), " "), colour)
	}
}

// Heat is a heat map: Cells[column][row], columns Step apart.
type Heat struct {
	Title, XLabel, YLabel, Unit string
	Step                        float64
	Cells                       [][]float32
}

// SVG writes the heat map. The darkest cell is the largest value of all.
func (h Heat) SVG(w io.Writer) error {
	var b bytes.Buffer
	rows, most := 0, float32(0)
	for _, c := range h.Cells {
		rows = max(rows, len(c))
		for _, v := range c {
			most = max(most, v)
		}
	}
	tall := top + bottom + 18*rows
	begin(&b, h.Title, tall)
	cell := float64(width-right-left) / float64(max(len(h.Cells), 1))
	for i, c := range h.Cells {
		for row, v := range c {
			if v > 0 {
				fmt.Fprintf(&b, `<rect x="%.2f" y="%d" width="%.2f" height="17" fill="#0072B2" fill-opacity="%.3f"/>`,
					left+cell*float64(i), top+18*row, cell+0.3, math.Sqrt(float64(v)/float64(max(most, 1))))
			}
		}
	}
	for row := range rows {
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="11" text-anchor="end">%d</text>`, left-8, top+18*row+13, row)
	}
	x := newAxis(false, left, width-right)
	x.include(0)
	x.include(h.Step * float64(len(h.Cells)))
	for _, t := range x.ticks() {
		if at, ok := x.place(t); ok {
			fmt.Fprintf(&b, `<text x="%.1f" y="%d" font-size="11" text-anchor="middle">%s</text>`, at, tall-bottom+18, number(t))
		}
	}
	labels(&b, h.XLabel, h.YLabel, tall)
	for i := range 5 {
		share := float64(i+1) / 5
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="20" height="17" fill="#0072B2" fill-opacity="%.3f"/>`, width-right+12, top+18*i, math.Sqrt(share))
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="11">%s %s</text>`, width-right+38, top+18*i+13, number(math.Round(share*float64(most))), html.EscapeString(h.Unit))
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

func begin(b *bytes.Buffer, title string, tall int) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" fill="#222" role="img" aria-label="%s">`,
		width, tall, width, tall, html.EscapeString(title))
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="#fff"/><text x="%d" y="24" font-size="15" font-weight="600">%s</text>`, width, tall, left, html.EscapeString(title))
}

func labels(b *bytes.Buffer, xLabel, yLabel string, tall int) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="12" text-anchor="middle">%s</text>`, (left+width-right)/2, tall-14, html.EscapeString(xLabel))
	fmt.Fprintf(b, `<text x="16" y="%d" font-size="12" text-anchor="middle" transform="rotate(-90 16 %d)">%s</text>`, (top+tall-bottom)/2, (top+tall-bottom)/2, html.EscapeString(yLabel))
}

func frame(b *bytes.Buffer, x, y axis, xLabel, yLabel string) {
	for _, t := range y.ticks() {
		if at, ok := y.place(t); ok {
			fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#e4e4e4"/>`, left, at, width-right, at)
			fmt.Fprintf(b, `<text x="%d" y="%.1f" font-size="11" text-anchor="end">%s</text>`, left-8, at+4, number(t))
		}
	}
	for _, t := range x.ticks() {
		if at, ok := x.place(t); ok {
			fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#888"/>`, at, height-bottom, at, height-bottom+5)
			fmt.Fprintf(b, `<text x="%.1f" y="%d" font-size="11" text-anchor="middle">%s</text>`, at, height-bottom+18, number(t))
		}
	}
	fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#888"/>`, left, height-bottom, width-right, height-bottom)
	labels(b, xLabel, yLabel, height)
}

// axis maps values to pixels.
type axis struct {
	log      bool
	from, to float64 // pixels
	lo, hi   float64 // values
}

func newAxis(log bool, from, to float64) axis {
	return axis{log, from, to, math.Inf(1), math.Inf(-1)}
}

func (a *axis) include(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) || a.log && v <= 0 {
		return
	}
	a.lo, a.hi = math.Min(a.lo, v), math.Max(a.hi, v)
}

// settle widens an axis that has no extent.
func (a *axis) settle() {
	switch {
	case a.lo > a.hi:
		a.lo, a.hi = 1, 10
	case a.lo == a.hi && a.log:
		a.lo, a.hi = a.lo/2, a.hi*2
	case a.lo == a.hi:
		a.hi++
	}
}

func (a axis) place(v float64) (float64, bool) {
	lo, hi := a.lo, a.hi
	if a.log {
		if v <= 0 {
			return 0, false
		}
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	if math.IsNaN(v) || math.IsInf(v, 0) || hi == lo {
		return 0, false
	}
	return a.from + (v-lo)/(hi-lo)*(a.to-a.from), true
}

// ticks returns round values within the axis.
func (a axis) ticks() (t []float64) {
	if a.log {
		decades := math.Log10(a.hi / a.lo)
		for e := math.Floor(math.Log10(a.lo)); e <= math.Log10(a.hi); e++ {
			for _, m := range []float64{1, 2, 5} {
				if v := m * math.Pow(10, e); v >= a.lo*0.999 && v <= a.hi*1.001 && (m == 1 || decades < 3) {
					t = append(t, v)
				}
			}
		}
		return t
	}
	step := math.Pow(10, math.Floor(math.Log10((a.hi-a.lo)/4)))
	for _, m := range []float64{5, 2} {
		if (a.hi-a.lo)/(step*m) >= 4 {
			step *= m
			break
		}
	}
	for v := math.Ceil(a.lo/step) * step; v <= a.hi+step/1000; v += step {
		t = append(t, v)
	}
	return t
}

// number writes a tick the short way: 286720 is 287k.
func number(v float64) string {
	switch {
	case math.Abs(v) >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + "M"
	case math.Abs(v) >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// Drawing is what a page shows.
type Drawing interface{ SVG(io.Writer) error }

// Page writes an HTML page of text paragraphs and drawings.
func Page(w io.Writer, title string, text []string, drawings []Drawing) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"+
		"<title>%[1]s</title><style>body{max-width:50rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 system-ui,sans-serif}svg{max-width:100%%;height:auto}pre{overflow-x:auto;font-size:13px}</style>\n<h1>%[1]s</h1>\n",
		html.EscapeString(title))
	for _, p := range text {
		fmt.Fprintf(&b, "<pre>%s</pre>\n", html.EscapeString(p))
	}
	for _, d := range drawings {
		b.WriteString("<figure>")
		if err := d.SVG(&b); err != nil {
			return err
		}
		b.WriteString("</figure>\n")
	}
	b.WriteString("</html>\n")
	_, err := w.Write(b.Bytes())
	return err
}
