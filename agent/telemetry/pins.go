package telemetry

import "github.com/prometheus/client_golang/prometheus"

// PinCollector shows what became of requests about stored responses and
// conversations, read at scrape time.
type PinCollector struct {
	counts   func(func(verdict string, n uint64))
	verdicts *prometheus.Desc
}

// NewPinCollector shows what counts calls its argument with.
func NewPinCollector(counts func(func(verdict string, n uint64))) *PinCollector {
	return &PinCollector{counts, prometheus.NewDesc("tautline_pin_verdicts_total",
		"Requests about stored responses and conversations, by what became of them.", []string{"verdict"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *PinCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.verdicts }

// Collect implements prometheus.Collector.
func (c *PinCollector) Collect(ch chan<- prometheus.Metric) {
	c.counts(func(verdict string, n uint64) {
		ch <- prometheus.MustNewConstMetric(c.verdicts, prometheus.CounterValue, float64(n), verdict)
	})
}
