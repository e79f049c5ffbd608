package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
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
		Marks: []Mark{{2, "tau"}},
	}
	if err := l.SVG(&b); err != nil {
		t.Fatal(err)
	}
	n := parse(t, b.Bytes())
	if n["circle"] != 5 || n["path"] != 2 || n["polygon"] != 1 {
		t.Errorf("drawn: %v", n)
	}
}

func TestOddData(t *testing.T) {
	for name, d := range map[string]Drawing{
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
			if err := d.SVG(&b); err != nil {
				t.Fatal(err)
			}
			parse(t, b.Bytes())
		})
	}
}

func TestHeatDrawsEveryCell(t *testing.T) {
	var b bytes.Buffer
	h := Heat{Title: "load", Unit: "requests", Step: 5, Cells: [][]float32{{1, 2}, {3, 0}}}
	if err := h.SVG(&b); err != nil {
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
	if err := Page(&b, "a <title>", []string{"x < y"}, []Drawing{Lines{}, Heat{}}); err != nil {
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
