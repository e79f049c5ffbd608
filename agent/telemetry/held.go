package telemetry

import "github.com/prometheus/client_golang/prometheus"

// NewHeldGauge shows how many requests are held now, read at scrape time.
func NewHeldGauge(held func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tautline_held_requests", Help: "Requests held in the agent because no backend has KV memory.",
	}, func() float64 { return float64(held()) })
}
