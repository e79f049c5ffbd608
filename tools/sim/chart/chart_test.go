package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/tautline/tautline/tools/draw"
)

// parse fails unless the document is well-formed XML, and counts its elements.
func parse(t *testing.T, doc []byte) map[string]int {
	t.Helper()
	counts := map[string]int{}
	d := xml.NewDecoder(bytes.NewReader(doc))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return counts
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, doc)
		}
		if s, ok := tok.(xml.StartElement); ok {
			counts[s.Name.Local]++
			for _, a := range s.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("<%s %s=%q>", s.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
}

func TestLinesDrawEveryPoint(t *testing.T) {
	var b bytes.Buffer
	l := Lines{
		Title: `p90 <of> "all" & more`, XLabel: "req/s", YLabel: "s", LogY: true,
		Series: []Series{
			{"a", []Point{{1, 1, 0.5, 2}, {2, 10, 5, 20}, {3, 100, 50, 200}}},
			{"b", []Point{{1, 2, 2, 2}, {2, 0, 0, 0}, {3, 3, 3, 3}}}, // zero has no place on a log axis
		},
		Marks: []Mark{{2, "tau"}}, Notes: []string{"band: range"},
	}
	if err := l.Draw().SVG(&b); err != nil {
		t.Fatal(err)
	}
	n := parse(t, b.Bytes())
	if !strings.Contains(b.String(), ">band: range<") {
		t.Error("the note is not there")
	}
	if n["circle"] != 5 || n["polygon"] != 1 || n["polyline"] < 2 {
		t.Errorf("drawn: %v", n)
	}
}

func TestOddData(t *testing.T) {
	for name, d := range map[string]Chart{
		"no series":  Lines{},
		"no points":  Lines{Series: []Series{{Name: "a"}}},
		"one point":  Lines{Series: []Series{{"a", []Point{{1, 1, 1, 1}}}}},
		"not finite": Lines{LogX: true, LogY: true, Series: []Series{{"a", []Point{{math.NaN(), 1, 1, 1}, {1, math.Inf(1), 0, 0}, {2, 2, 2, 2}}}}},
		"all zero":   Lines{LogY: true, Series: []Series{{"a", []Point{{1, 0, 0, 0}}}}},
		"empty heat": Heat{},
		"zero heat":  Heat{Step: 1, Cells: [][]float32{{0, 0}, {0}}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := d.Draw().SVG(&b); err != nil {
				t.Fatal(err)
			}
			parse(t, b.Bytes())
			if name == "not finite" || name == "empty heat" { // large pictures take long to compress
				if err := d.Draw().PNG(io.Discard); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestHeatDrawsEveryCell(t *testing.T) {
	var b bytes.Buffer
	h := Heat{Title: "load", Unit: "requests", Step: 5, Cells: [][]float32{{1, 2}, {3, 0}}}
	if err := h.Draw().SVG(&b); err != nil {
		t.Fatal(err)
	}
	if n := parse(t, b.Bytes()); n["rect"] != 1+3+5 { // ground, cells above zero, scale
		t.Errorf("drawn: %v", n)
	}
}

func TestTicksAreRoundAndWithin(t *testing.T) {
	for _, c := range []struct {
		log    bool
		lo, hi float64
	}{{false, 0, 600}, {false, 0, 7}, {false, 27500, 600000}, {true, 0.07, 5300}, {true, 1, 3}, {false, 0, 1}} {
		a := newAxis(c.log, 0, 100)
		a.include(c.lo)
		a.include(c.hi)
		a.settle()
		ticks := a.ticks()
		if len(ticks) < 2 || len(ticks) > 16 {
			t.Errorf("%+v: ticks %v", c, ticks)
		}
		for _, v := range ticks {
			if at, ok := a.place(v); !ok || at < -1 || at > 101 {
				t.Errorf("%+v: tick %v at %v", c, v, at)
			}
		}
	}
	for v, want := range map[float64]string{286720: "287k", 1.5e6: "1.5M", 0.07: "0.07", 60: "60", 2000: "2000"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %s, want %s", v, got, want)
		}
	}
}

func TestPageNeedsNothingElse(t *testing.T) {
	var b bytes.Buffer
	if err := Page(&b, "a <title>", []string{"x < y"}, []Chart{Lines{}, Heat{}}); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	for _, bad := range []string{"<script", "src=", "href=", "@import", "url("} {
		if strings.Contains(s, bad) {
			t.Errorf("page holds %q", bad)
		}
	}
	if strings.Count(s, "<svg") != 2 || !strings.Contains(s, "x &lt; y") {
		t.Error("page lacks what it should show")
	}
}

// Labels of marks stand above the plot, and none on another: the two of the tau
// sweep, equal ones, one at each end.
func TestMarksDoNotOverlap(t *testing.T) {
	l := Lines{
		Series: []Series{{"a", []Point{{20000, 1, 1, 1}, {600000, 2, 2, 2}}}},
		Marks:  []Mark{{55000, "break-even: 55,000"}, {60000, "twice that: 60,000"}, {286720, "14 s: 286,720"}, {20000, "here it begins"}, {600000, "here it ends"}},
	}
	x := newAxis(false, left, plotRight)
	x.include(20000)
	x.include(600000)
	x.settle()
	rows := l.labelRows(x)
	for i := range rows {
		a, _ := x.place(l.Marks[i].X)
		at, half := l.labelAt(i, a), float64(letter*len(l.Marks[i].Text))/2
		if at-half < left-1 || at+half > plotRight+1 {
			t.Errorf("%q leads out of the plot", l.Marks[i].Text)
		}
		for k := range i {
			b, _ := x.place(l.Marks[k].X)
			if gap := math.Abs(at-l.labelAt(k, b)) - half - float64(letter*len(l.Marks[k].Text))/2; rows[i] == rows[k] && gap < letter {
				t.Errorf("%q and %q are in row %d, %.0f pixels apart", l.Marks[i].Text, l.Marks[k].Text, rows[i], gap)
			}
		}
	}
	if len(l.labelRows(x)) == 0 || rows[2] != 0 {
		t.Errorf("rows %v: what has room belongs into the first", rows)
	}
}

// No two series look the same, and of two that lie on one another both are seen.
func TestSeriesCanBeToldApart(t *testing.T) {
	seen := map[string]int{}
	for i := range 16 {
		look := fmt.Sprint(ink(i).RGB, ink(i).Dash)
		if k, there := seen[look]; there {
			t.Errorf("series %d and %d look the same", k, i)
		}
		seen[look] = i
	}
	same := []Point{{0, 1, 1, 1}, {100, 1, 1, 1}}
	p := Lines{Series: []Series{{"a", same}, {"b", same}, {"c", same}}}.Draw()
	img := pixels(t, p)
	y := newAxis(false, tall-bottom, top)
	y.include(0)
	y.include(1)
	at, _ := y.place(1)
	counts := map[uint32]int{}
	for x := left + 10; x < plotRight-10; x++ {
		r, g, b, _ := img.At(draw.Scale*x, int(draw.Scale*at)).RGBA()
		counts[r>>8<<16|g>>8<<8|b>>8]++
	}
	for i := range 3 {
		if counts[colours[i]] < 20 {
			t.Errorf("series %d is hidden: %v", i, counts)
		}
	}
}

// pixels is what a picture's PNG shows.
func pixels(t *testing.T, p *draw.Picture) image.Image {
	t.Helper()
	var b bytes.Buffer
	if err := p.PNG(&b); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// Where a series has its points, the PNG has its colour.
func TestPNGShowsTheSeries(t *testing.T) {
	l := Lines{Title: "t", XLabel: "x", YLabel: "y", Series: []Series{
		{"a", []Point{{0, 0, 0, 0}, {10, 10, 10, 10}}},
		{"b", []Point{{0, 10, 10, 10}, {10, 0, 0, 0}}},
	}}
	p := l.Draw()
	img := pixels(t, p)
	if size := img.Bounds().Size(); size.X != draw.Scale*width || size.Y != draw.Scale*tall {
		t.Errorf("size %v", size)
	}
	x, y := newAxis(false, left, plotRight), newAxis(false, tall-bottom, top)
	for _, a := range []*axis{&x, &y} {
		a.include(0)
		a.include(10)
	}
	for _, c := range []struct {
		x, y float64
		rgb  uint32
	}{{0, 0, colours[0]}, {10, 10, colours[0]}, {2.5, 2.5, colours[0]}, {0, 10, colours[1]}, {10, 0, colours[1]}, {5, 9, 0xffffff}} {
		px, _ := x.place(c.x)
		py, _ := y.place(c.y)
		r, g, b, _ := img.At(int(draw.Scale*px), int(draw.Scale*py)).RGBA()
		if got := r>>8<<16 | g>>8<<8 | b>>8; got != c.rgb {
			t.Errorf("at %v, %v: %06x, want %06x", c.x, c.y, got, c.rgb)
		}
	}
}
