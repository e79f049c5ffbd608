package telemetry

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// quantiles reads a histogram; nil when it has no samples.
func quantiles(o prometheus.Observer) *Quantiles {
	m, ok := o.(prometheus.Metric)
	if !ok {
		return nil
	}
	var out dto.Metric
	if m.Write(&out) != nil || out.GetHistogram().GetSampleCount() == 0 {
		return nil
	}
	h := out.GetHistogram()
	at := func(q float64) float64 {
		rank := uint64(math.Ceil(q * float64(h.GetSampleCount())))
		last := 0.0
		for _, b := range h.GetBucket() {
			last = b.GetUpperBound()
			if b.GetCumulativeCount() >= rank {
				break
			}
		}
		return last
	}
	return &Quantiles{Count: h.GetSampleCount(), P50: at(.5), P90: at(.9), P99: at(.99)}
}
