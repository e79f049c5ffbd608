package draw

import "math"

// step is a part of a path, by its number of points: 1 a straight line, 2 and 3 a
// curve of second and third degree. The last point is its end.
type step []Point

// path is a closed outline. Its first step is the place where it begins.
type path []step

func straight(points []Point) path {
	var p path
	for _, at := range points {
		p = append(p, step{at})
	}
	return p
}

// circle is a polygon of so many corners that none is seen at a chart's sizes.
func circle(c Point, radius float64) path {
	const corners = 24
	points := make([]Point, corners)
	for i := range points {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		points[i] = Point{c.X + radius*cos, c.Y + radius*sin}
	}
	return straight(points)
}

// outline is what a line covers: a rectangle for each piece, and a circle where
// an unbroken line turns. All run the same way round, since what runs the other
// way would cut holes.
func outline(points []Point, s Stroke) (paths []path) {
	half := s.Width / 2
	for _, piece := range dashes(points, s.Dash) {
		for i := 1; i < len(piece); i++ {
			a, b := piece[i-1], piece[i]
			length := math.Hypot(b.X-a.X, b.Y-a.Y)
			if length == 0 {
				continue
			}
			dx, dy := half*(b.X-a.X)/length, half*(b.Y-a.Y)/length
			paths = append(paths, straight([]Point{{a.X + dy, a.Y - dx}, {b.X + dy, b.Y - dx}, {b.X - dy, b.Y + dx}, {a.X - dy, a.Y + dx}}))
			if i > 1 {
				paths = append(paths, circle(a, half))
			}
		}
	}
	return paths
}

// dashes cuts a line into the pieces that are drawn.
func dashes(points []Point, pattern []float64) (pieces [][]Point) {
	sum := 0.0
	for _, d := range pattern {
		sum += d
	}
	if sum <= 0 || len(points) == 0 {
		return [][]Point{points}
	}
	at, left := 0, pattern[0]
	piece := []Point{points[0]}
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		for length := math.Hypot(b.X-a.X, b.Y-a.Y); length > left; {
			share := left / length
			a = Point{a.X + share*(b.X-a.X), a.Y + share*(b.Y-a.Y)}
			length -= left
			if at%2 == 0 {
				pieces = append(pieces, append(piece, a))
			}
			piece = []Point{a}
			at = (at + 1) % len(pattern)
			left = pattern[at]
		}
		left -= math.Hypot(b.X-a.X, b.Y-a.Y)
		piece = append(piece, b)
	}
	if at%2 == 0 {
		pieces = append(pieces, piece)
	}
	return pieces
}
