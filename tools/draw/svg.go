package draw

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
)

// SVG writes the picture as an SVG document that refers to nothing outside.
func (p *Picture) SVG(w io.Writer) error {
	var b bytes.Buffer
	title := html.EscapeString(p.Title)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif" role="img" aria-label="%s">`+"\n",
		p.Width, p.Height, p.Width, p.Height, title)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", p.Width, p.Height)
	for i := range p.shapes {
		p.shapes[i].svg(&b)
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (s *shape) svg(b *bytes.Buffer) {
	switch s.kind {
	case polygon:
		if x, y, width, height, ok := box(s.points); ok {
			fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s"%s/>`, px(x), px(y), px(width), px(height), s.fill.svg("fill"))
		} else {
			fmt.Fprintf(b, `<polygon points="%s"%s/>`, list(s.points), s.fill.svg("fill"))
		}
	case line:
		fmt.Fprintf(b, `<polyline points="%s" fill="none"%s stroke-width="%s"`, list(s.points), s.stroke.svg("stroke"), px(s.stroke.Width))
		if len(s.stroke.Dash) > 0 {
			var dash []string
			for _, d := range s.stroke.Dash {
				dash = append(dash, px(d))
			}
			fmt.Fprintf(b, ` stroke-dasharray="%s"`, strings.Join(dash, " "))
		}
		b.WriteString("/>")
	case dot:
		fmt.Fprintf(b, `<circle cx="%s" cy="%s" r="%s"%s/>`, px(s.points[0].X), px(s.points[0].Y), px(s.radius), s.fill.svg("fill"))
	case text:
		at := s.points[0]
		fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s"%s`, px(at.X), px(at.Y), px(s.font.Size), Solid(s.font.RGB).svg("fill"))
		if s.font.Anchor != Start {
			fmt.Fprintf(b, ` text-anchor="%s"`, [...]string{Middle: "middle", End: "end"}[s.font.Anchor])
		}
		if s.font.Bold {
			b.WriteString(` font-weight="600"`)
		}
		if s.font.Turn != 0 {
			fmt.Fprintf(b, ` transform="rotate(%d %s %s)"`, 90*s.font.Turn, px(at.X), px(at.Y))
		}
		fmt.Fprintf(b, `>%s</text>`, html.EscapeString(s.text))
	}
	b.WriteByte('\n')
}

// box says whether the points are a rectangle, as Rect makes them.
func box(p []Point) (x, y, width, height float64, ok bool) {
	if len(p) != 4 || p[0].Y != p[1].Y || p[1].X != p[2].X || p[2].Y != p[3].Y || p[3].X != p[0].X {
		return 0, 0, 0, 0, false
	}
	return p[0].X, p[0].Y, p[2].X - p[0].X, p[2].Y - p[0].Y, true
}

// svg returns the attributes of the paint, for a fill or a stroke.
func (p Paint) svg(what string) string {
	s := fmt.Sprintf(` %s="#%06x"`, what, p.RGB&0xffffff)
	if p.Opacity < 1 {
		s += fmt.Sprintf(` %s-opacity="%s"`, what, strconv.FormatFloat(p.Opacity, 'f', 3, 64))
	}
	return s
}

func list(points []Point) string {
	var s []string
	for _, p := range points {
		s = append(s, px(p.X)+","+px(p.Y))
	}
	return strings.Join(s, " ")
}

// px writes a length to a tenth of a pixel.
func px(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0")
}
