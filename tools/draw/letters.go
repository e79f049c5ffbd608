package draw

import (
	"fmt"
	"math"

	"golang.org/x/image/font"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// letters are the outlines of a text.
func (r *raster) letters(s *shape) (paths []path, err error) {
	f := r.regular
	if s.font.Bold {
		f = r.bold
	}
	// Outlines in units of the font: exact, whatever the size.
	units := fixed.Int26_6(f.UnitsPerEm()) << 6
	scale := s.font.Size / (float64(units) / 64)
	var glyphs []sfnt.GlyphIndex
	var from []float64
	width := 0.0
	for _, c := range s.text {
		g, err := f.GlyphIndex(&r.glyphs, c)
		if err != nil {
			return nil, fmt.Errorf("letter %q: %w", c, err)
		}
		advance, err := f.GlyphAdvance(&r.glyphs, g, units, font.HintingNone)
		if err != nil {
			return nil, fmt.Errorf("letter %q: %w", c, err)
		}
		glyphs, from = append(glyphs, g), append(from, width)
		width += scale * float64(advance) / 64
	}
	shift := [...]float64{Start: 0, Middle: -width / 2, End: -width}[s.font.Anchor]
	sin, cos := math.Sincos(float64(s.font.Turn) * math.Pi / 2)
	for i, g := range glyphs {
		segments, err := f.LoadGlyph(&r.glyphs, g, units, nil)
		if err != nil {
			return nil, fmt.Errorf("text %q: %w", s.text, err)
		}
		place := func(p fixed.Point26_6) Point {
			x, y := shift+from[i]+scale*float64(p.X)/64, scale*float64(p.Y)/64
			return Point{s.points[0].X + cos*x - sin*y, s.points[0].Y + sin*x + cos*y}
		}
		for _, g := range segments {
			switch g.Op {
			case sfnt.SegmentOpMoveTo:
				paths = append(paths, path{{place(g.Args[0])}})
				continue
			case sfnt.SegmentOpLineTo:
				add(paths, step{place(g.Args[0])})
			case sfnt.SegmentOpQuadTo:
				add(paths, step{place(g.Args[0]), place(g.Args[1])})
			case sfnt.SegmentOpCubeTo:
				add(paths, step{place(g.Args[0]), place(g.Args[1]), place(g.Args[2])})
			}
		}
	}
	return paths, nil
}

// add appends a step to the last path.
func add(paths []path, s step) {
	last := &paths[len(paths)-1]
	*last = append(*last, s)
}
