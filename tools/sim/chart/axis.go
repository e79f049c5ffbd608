package chart

import (
	"math"
	"strconv"
)

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
