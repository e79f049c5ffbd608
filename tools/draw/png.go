package draw

import (
	"fmt"
	"image"
	"image/color"
	imagedraw "image/draw"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/vector"
)

// Scale is how many pixels of a PNG a pixel of the picture has along each side:
// screens with small pixels show two.
const Scale = 2

// PNG writes the picture as a PNG. Text is set in the Go fonts.
func (p *Picture) PNG(w io.Writer) error {
	r, err := newRaster(p.Width, p.Height)
	if err != nil {
		return err
	}
	for i := range p.shapes {
		if err := r.add(&p.shapes[i]); err != nil {
			return err
		}
	}
	e := png.Encoder{CompressionLevel: png.BestCompression}
	return e.Encode(w, r.image)
}

// raster is a picture on its way to pixels.
type raster struct {
	image         *image.RGBA
	regular, bold *sfnt.Font
	glyphs        sfnt.Buffer
	fill          vector.Rasterizer
}

func newRaster(width, height int) (*raster, error) {
	r := &raster{image: image.NewRGBA(image.Rect(0, 0, Scale*width, Scale*height))}
	imagedraw.Draw(r.image, r.image.Rect, image.White, image.Point{}, imagedraw.Src)
	var err error
	if r.regular, err = sfnt.Parse(goregular.TTF); err != nil {
		return nil, fmt.Errorf("font: %w", err)
	}
	if r.bold, err = sfnt.Parse(gobold.TTF); err != nil {
		return nil, fmt.Errorf("font: %w", err)
	}
	return r, nil
}

func (r *raster) add(s *shape) error {
	switch s.kind {
	case polygon:
		r.paint([]path{straight(s.points)}, s.fill)
	case line:
		r.paint(outline(s.points, s.stroke), s.stroke.Paint)
	case dot:
		r.paint([]path{circle(s.points[0], s.radius)}, s.fill)
	case text:
		paths, err := r.letters(s)
		if err != nil {
			return err
		}
		r.paint(paths, Solid(s.font.RGB))
	}
	return nil
}

// paint fills what the paths enclose.
func (r *raster) paint(paths []path, paint Paint) {
	bounds := reach(paths).Intersect(r.image.Rect)
	if bounds.Empty() {
		return
	}
	// Only what the paths reach is rasterized; outlines may begin left of or above it.
	at := func(p Point) (x, y float32) {
		return float32(Scale*p.X - float64(bounds.Min.X)), float32(Scale*p.Y - float64(bounds.Min.Y))
	}
	r.fill.Reset(bounds.Dx(), bounds.Dy())
	for _, p := range paths {
		for i, s := range p {
			x, y := at(s[len(s)-1])
			switch {
			case i == 0:
				r.fill.MoveTo(x, y)
			case len(s) == 1:
				r.fill.LineTo(x, y)
			case len(s) == 2:
				bx, by := at(s[0])
				r.fill.QuadTo(bx, by, x, y)
			default:
				bx, by := at(s[0])
				cx, cy := at(s[1])
				r.fill.CubeTo(bx, by, cx, cy, x, y)
			}
		}
		r.fill.ClosePath()
	}
	source := image.NewUniform(color.NRGBA{
		uint8(paint.RGB >> 16), uint8(paint.RGB >> 8), uint8(paint.RGB), uint8(math.Round(255 * min(max(paint.Opacity, 0), 1))),
	})
	r.fill.Draw(r.image, bounds, source, image.Point{})
}

// reach is the box around the paths, in pixels of the image.
func reach(paths []path) image.Rectangle {
	lo, hi := Point{math.Inf(1), math.Inf(1)}, Point{math.Inf(-1), math.Inf(-1)}
	for _, p := range paths {
		for _, s := range p {
			for _, at := range s {
				lo = Point{min(lo.X, at.X), min(lo.Y, at.Y)}
				hi = Point{max(hi.X, at.X), max(hi.Y, at.Y)}
			}
		}
	}
	if lo.X > hi.X {
		return image.Rectangle{}
	}
	return image.Rect(int(math.Floor(Scale*lo.X)), int(math.Floor(Scale*lo.Y)), int(math.Ceil(Scale*hi.X)), int(math.Ceil(Scale*hi.Y)))
}
