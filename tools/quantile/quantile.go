// Package quantile answers quantiles of measured samples, the same way in every
// tool: a p90 of the simulator and one of the benchmark mean the same.
package quantile

import "math"

// Of returns the q-quantile of sorted samples by the nearest rank: the smallest
// sample that at least the share q of all samples does not exceed. q is in
// [0, 1]; 0 gives the smallest, 1 the largest. Of no samples it is T's zero.
func Of[T any](sorted []T, q float64) T {
	n := len(sorted)
	if n == 0 {
		var none T
		return none
	}
	// 0.07 x 100 is a little more than 7 in floating point, and its rank is 7.
	rank := int(math.Ceil(q * float64(n) * (1 - 1e-12)))
	return sorted[min(max(rank, 1), n)-1]
}
