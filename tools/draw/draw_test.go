package draw

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"
)

// all has every shape once.
func all() *Picture {
	p := &Picture{Title: `a "title" <&>`, Width: 100, Height: 60}
	p.Rect(10, 10, 20, 10, Solid(0xff0000))
	p.Polygon([]Point{{40, 10}, {60, 10}, {50, 20}}, Paint{0x0000ff, 0.5})
	p.Line([]Point{{10, 30}, {50, 30}, {50, 50}}, Stroke{Paint: Solid(0x008000), Width: 4})
	p.Line([]Point{{60, 30}, {90, 30}}, Stroke{Paint: Solid(0x000000), Width: 2, Dash: []float64{5, 5}})
	p.Dot(80, 15, 5, Solid(0xffa500))
	p.Text(10, 58, "MMM <b>", Font{Size: 12, RGB: 0x800080})
	return p
}

func pixels(t *testing.T, p *Picture) image.Image {
	t.Helper()
	var b bytes.Buffer
	if err := p.PNG(&b); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := img.Bounds().Size(), image.Pt(Scale*p.Width, Scale*p.Height); got != want {
		t.Fatalf("size %v, want %v", got, want)
	}
	return img
}

// rgb is the colour of the pixel around a place of the picture.
func rgb(img image.Image, x, y float64) uint32 {
	r, g, b, _ := img.At(int(Scale*x), int(Scale*y)).RGBA()
	return r>>8<<16 | g>>8<<8 | b>>8
}

func TestPNGHasEveryShapeInItsPlace(t *testing.T) {
	img := pixels(t, all())
	for _, c := range []struct {
		what string
		x, y float64
		want uint32
	}{
		{"ground", 5, 5, 0xffffff},
		{"rectangle", 20, 15, 0xff0000}, {"its corner", 10.25, 10.25, 0xff0000}, {"beside it", 30.5, 15, 0xffffff},
		{"polygon, half through", 50, 13, 0x7f7fff}, {"below it", 42, 19, 0xffffff},
		{"line", 30, 30, 0x008000}, {"its turn", 51, 29, 0x008000}, {"its end", 50, 49, 0x008000}, {"beside it", 30, 33, 0xffffff},
		{"dash", 62, 30, 0x000000}, {"gap", 67.5, 30, 0xffffff}, {"next dash", 72, 30, 0x000000},
		{"dot", 80, 15, 0xffa500}, {"dot's edge", 83, 12, 0xffa500}, {"beside it", 84.5, 10.5, 0xffffff},
	} {
		if got := rgb(img, c.x, c.y); got != c.want {
			t.Errorf("%s at %v, %v: %06x, want %06x", c.what, c.x, c.y, got, c.want)
		}
	}
}

// ink is the box of all that is not ground, in pixels of the picture.
func ink(img image.Image) (lo, hi Point) {
	lo, hi = Point{math.Inf(1), math.Inf(1)}, Point{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			if r, g, b, _ := img.At(x, y).RGBA(); r&g&b < 0x8000 {
				at := Point{float64(x) / Scale, float64(y) / Scale}
				lo = Point{min(lo.X, at.X), min(lo.Y, at.Y)}
				hi = Point{max(hi.X, at.X), max(hi.Y, at.Y)}
			}
		}
	}
	return lo, hi
}

func TestTextIsAnchoredAndTurned(t *testing.T) {
	for _, c := range []struct {
		name           string
		font           Font
		x0, x1, y0, y1 float64 // bounds of the ink around the place 100, 100
	}{
		{"start", Font{}, 100, 200, 80, 101},
		{"middle", Font{Anchor: Middle}, 60, 140, 80, 101},
		{"end", Font{Anchor: End}, 0, 101, 80, 101},
		{"upwards", Font{Turn: -1}, 80, 101, 0, 101},
		{"upwards, middle", Font{Turn: -1, Anchor: Middle}, 80, 101, 60, 140},
	} {
		p := &Picture{Width: 200, Height: 200}
		c.font.Size = 20
		p.Text(100, 100, "HHHH", c.font)
		lo, hi := ink(pixels(t, p))
		if lo.X < c.x0-1 || hi.X > c.x1 || lo.Y < c.y0 || hi.Y > c.y1 || hi.X-lo.X < 10 || hi.Y-lo.Y < 10 {
			t.Errorf("%s: ink from %v to %v", c.name, lo, hi)
		}
		if w := hi.X - lo.X; c.name == "middle" && math.Abs(lo.X+w/2-100) > 1.5 {
			t.Errorf("middle: ink from %v to %v", lo, hi)
		}
	}
	var dark [2]int
	for i, bold := range []bool{false, true} {
		p := &Picture{Width: 100, Height: 40}
		p.Text(10, 30, "HHHH", Font{Size: 20, Bold: bold})
		img := pixels(t, p)
		for y := range img.Bounds().Dy() {
			for x := range img.Bounds().Dx() {
				if r, _, _, _ := img.At(x, y).RGBA(); r < 0x8000 {
					dark[i]++
				}
			}
		}
	}
	if dark[1] < dark[0]*5/4 {
		t.Errorf("%d dark pixels in bold, %d else", dark[1], dark[0])
	}
}

// Letters have holes; lines have none where their pieces overlap.
func TestHolesAreWhereTheyBelong(t *testing.T) {
	p := &Picture{Width: 100, Height: 100}
	p.Text(50, 90, "O", Font{Size: 100, Anchor: Middle})
	if got := rgb(pixels(t, p), 50, 54); got != 0xffffff {
		t.Errorf("the middle of an O is %06x", got)
	}
	p = &Picture{Width: 100, Height: 100}
	var zigzag []Point
	for i := range 40 {
		zigzag = append(zigzag, Point{20 + float64(i), 50 + 3*float64(i%2)})
	}
	p.Line(zigzag, Stroke{Paint: Solid(0), Width: 8})
	img := pixels(t, p)
	for x := 22.0; x < 58; x += 0.5 {
		if got := rgb(img, x, 51.5); got != 0 {
			t.Fatalf("a hole in a line at %v: %06x", x, got)
		}
	}
}

func TestOutsideIsCutOff(t *testing.T) {
	p := &Picture{Width: 40, Height: 40}
	p.Rect(-10, -10, 20, 20, Solid(0xff0000))
	p.Rect(100, 100, 10, 10, Solid(0xff0000))
	p.Line([]Point{{-50, 20}, {90, 20}}, Stroke{Paint: Solid(0x0000ff), Width: 2})
	p.Line(nil, Stroke{Paint: Solid(0x0000ff), Width: 2})
	p.Line([]Point{{1, 1}, {1, 1}}, Stroke{Paint: Solid(0x0000ff), Width: 2, Dash: []float64{0, 0}})
	p.Polygon(nil, Solid(0))
	p.Text(38, 38, "long text", Font{Size: 12})
	p.Text(0, 38, "long text", Font{Size: 12, Anchor: End})
	p.Text(10, 30, "", Font{Size: 12})
	img := pixels(t, p)
	if rgb(img, 5, 5) != 0xff0000 || rgb(img, 15, 15) != 0xffffff || rgb(img, 1, 20) != 0x0000ff || rgb(img, 39, 20) != 0x0000ff {
		t.Error("what leads out of the picture is not drawn within")
	}
}

// A letter that the font lacks is drawn as its box, not refused.
func TestUnknownLetters(t *testing.T) {
	p := &Picture{Width: 100, Height: 40}
	p.Text(10, 30, "\u4e2d\U0001f600", Font{Size: 20})
	if lo, hi := ink(pixels(t, p)); hi.X <= lo.X {
		t.Error("nothing is drawn")
	}
}

func TestSVGIsWellFormedAndHasEveryShape(t *testing.T) {
	var b bytes.Buffer
	if err := all().SVG(&b); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for d := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, b.String())
		}
		if e, ok := token.(xml.StartElement); ok {
			counts[e.Name.Local]++
		}
	}
	for name, n := range map[string]int{"svg": 1, "rect": 2, "polygon": 1, "polyline": 2, "circle": 1, "text": 1} {
		if counts[name] != n {
			t.Errorf("%d <%s>, want %d", counts[name], name, n)
		}
	}
	for _, want := range []string{`stroke-dasharray="5 5"`, `fill-opacity="0.500"`, `a &#34;title&#34; &lt;&amp;&gt;`, "MMM &lt;b&gt;"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
}

// An encoder's error reaches the caller.
func TestWriteErrors(t *testing.T) {
	p := all()
	for name, write := range map[string]func(io.Writer) error{"SVG": p.SVG, "PNG": p.PNG} {
		if err := write(full{}); !errors.Is(err, errFull) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

var errFull = errors.New("no space left")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
