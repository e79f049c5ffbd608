package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tautline/tautline/userspace/poll"
)

// PollCollector shows what went wrong while polling, read at scrape time.
type PollCollector struct {
	status func() []poll.Status
	errors *prometheus.Desc
	polls  *prometheus.Desc
}

// NewPollCollector shows what status returns.
func NewPollCollector(status func() []poll.Status) *PollCollector {
	return &PollCollector{
		status: status,
		errors: prometheus.NewDesc("tautline_poll_errors_total", "Requests to an engine's metrics, health or models that brought nothing, by reason.", []string{"backend", "reason"}, nil),
		polls:  prometheus.NewDesc("tautline_polls_total", "Polls of an engine.", []string{"backend"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *PollCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *PollCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.status() {
		ch <- prometheus.MustNewConstMetric(c.polls, prometheus.CounterValue, float64(s.Polls), s.Name)
		for _, why := range poll.Reasons() {
			ch <- prometheus.MustNewConstMetric(c.errors, prometheus.CounterValue, float64(s.Errors[why]), s.Name, why.String())
		}
	}
}
