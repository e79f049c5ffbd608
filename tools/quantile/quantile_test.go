package quantile

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	to := func(n int) (d []time.Duration) {
		for i := range n {
			d = append(d, time.Duration(i+1))
		}
		return d
	}
	for _, c := range []struct {
		n    int
		q    float64
		want time.Duration
	}{
		{0, .5, 0}, {1, 0, 1}, {1, .5, 1}, {1, 1, 1},
		{2, .5, 1}, {2, .51, 2}, {3, .5, 2}, {4, .5, 2},
		{10, 0, 1}, {10, .1, 1}, {10, .9, 9}, {10, .91, 10}, {10, 1, 10},
		{100, .07, 7}, {100, .5, 50}, {100, .55, 55}, {100, .9, 90}, {100, .99, 99}, {100, .999, 100},
		{1000, .999, 999}, {1000, .14, 140},
	} {
		if got := Of(to(c.n), c.q); got != c.want {
			t.Errorf("%v of 1..%d: %d, want %d", c.q, c.n, got, c.want)
		}
	}
}

// Against the definition, spelled out: the first sample that enough others do
// not exceed. Shares are whole per cents, compared as whole numbers.
func TestOfIsTheNearestRank(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		samples := make([]float64, 1+rnd.IntN(300))
		for i := range samples {
			samples[i] = float64(rnd.IntN(50))
		}
		slices.Sort(samples)
		percent := rnd.IntN(101)
		want := samples[0]
		for i := range samples {
			if 100*(i+1) >= percent*len(samples) {
				want = samples[i]
				break
			}
		}
		if got := Of(samples, float64(percent)/100); got != want {
			t.Fatalf("%d %% of %v: %v, want %v", percent, samples, got, want)
		}
	}
}
