// Package draw is a small language for charts: a Picture is described once, in
// pixels from its upper left corner, and written as SVG or as PNG. Both show the
// same; only the fonts differ, since an SVG uses the viewer's.
package draw

// Point is a place in a picture.
type Point struct{ X, Y float64 }

// Paint is a colour with its opacity.
type Paint struct {
	RGB     uint32  // 0xRRGGBB
	Opacity float64 // 1 covers what is below
}

// Solid is a paint that covers what is below.
func Solid(rgb uint32) Paint { return Paint{rgb, 1} }

// Stroke is how a line is drawn.
type Stroke struct {
	Paint
	Width float64
	Dash  []float64 // lengths of dashes and gaps in turn, an even number; none = unbroken
}

// Anchor says which part of a text lies at its place.
type Anchor uint8

// The anchors.
const (
	Start Anchor = iota
	Middle
	End
)

// Font is how a text is set.
type Font struct {
	Size   float64 // pixels
	Bold   bool
	RGB    uint32
	Anchor Anchor
	Turn   int // quarter turns clockwise around its place: 0, or -1 for upwards
}

// shape is one element of a picture.
type shape struct {
	points []Point // of a polygon or line; the place of a text or dot
	radius float64 // of a dot
	fill   Paint
	stroke Stroke
	text   string
	font   Font
	kind   kind
}

type kind uint8

const (
	polygon kind = iota
	line
	dot
	text
)

// Picture is a drawing on a white ground. What is added later lies on top.
type Picture struct {
	Title         string // for readers who do not see it
	Width, Height int
	shapes        []shape
}

// Rect adds a filled rectangle.
func (p *Picture) Rect(x, y, width, height float64, fill Paint) {
	p.Polygon([]Point{{x, y}, {x + width, y}, {x + width, y + height}, {x, y + height}}, fill)
}

// Polygon adds a filled polygon, which takes ownership of points.
func (p *Picture) Polygon(points []Point, fill Paint) {
	p.shapes = append(p.shapes, shape{kind: polygon, points: points, fill: fill})
}

// Line adds a line through the points, which takes ownership of them.
func (p *Picture) Line(points []Point, s Stroke) {
	p.shapes = append(p.shapes, shape{kind: line, points: points, stroke: s})
}

// Dot adds a filled circle.
func (p *Picture) Dot(x, y, radius float64, fill Paint) {
	p.shapes = append(p.shapes, shape{kind: dot, points: []Point{{x, y}}, radius: radius, fill: fill})
}

// Text adds a line of text. Its base line goes through the point.
func (p *Picture) Text(x, y float64, s string, f Font) {
	p.shapes = append(p.shapes, shape{kind: text, points: []Point{{x, y}}, text: s, font: f})
}
