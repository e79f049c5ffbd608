package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tautline/tautline/maps"
)

// SpliceSource is what the kernel side tells at scrape time.
type SpliceSource interface {
	// SpliceOn says whether the kernel carries streams, and why not.
	SpliceOn() (on bool, reason string)
	// SpliceCounts calls f for each result and reason of a response.
	SpliceCounts(f func(result, reason string, n uint64))
	// SpliceBackends calls f with the label and number of each backend.
	SpliceBackends(f func(label string, id uint32))
	// SpliceMaps are the kernel's maps; nil when off.
	SpliceMaps() *maps.Set
}

// SpliceCollector reads the kernel's numbers when it is scraped.
type SpliceCollector struct {
	source                          SpliceSource
	on, responses, bytes, chunks    *prometheus.Desc
	gap, events, eventBytes, failed *prometheus.Desc
}

// NewSpliceCollector shows source.
func NewSpliceCollector(source SpliceSource) *SpliceCollector {
	d := prometheus.NewDesc
	return &SpliceCollector{
		source:     source,
		on:         d("tautline_splice_on", "1 when the kernel carries streams; the reason says why not.", []string{"reason"}, nil),
		responses:  d("tautline_splice_responses_total", "Responses by how they ended and whether, or why not, the kernel carried chunks of them.", []string{"result", "reason"}, nil),
		bytes:      d("tautline_spliced_bytes_total", "Bytes that the kernel carried past the agent.", []string{"backend"}, nil),
		chunks:     d("tautline_spliced_chunks_total", "Messages that the kernel carried past the agent.", []string{"backend"}, nil),
		gap:        d("tautline_chunk_gap_seconds", "Time between two messages that the kernel carried, per response.", []string{"backend"}, nil),
		events:     d("tautline_kernel_events_total", "Verdicts and events of the BPF programs since the maps were made, by reason.", []string{"reason"}, nil),
		eventBytes: d("tautline_kernel_event_bytes_total", "Bytes of the messages behind those events.", []string{"reason"}, nil),
		failed:     d("tautline_splice_read_errors", "1 when the last scrape could not read a map.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *SpliceCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *SpliceCollector) Collect(ch chan<- prometheus.Metric) {
	on, reason := c.source.SpliceOn()
	if on {
		reason = ""
	}
	ch <- prometheus.MustNewConstMetric(c.on, prometheus.GaugeValue, one(on), brief(reason))
	c.source.SpliceCounts(func(result, reason string, n uint64) {
		ch <- prometheus.MustNewConstMetric(c.responses, prometheus.CounterValue, float64(n), result, reason)
	})
	set := c.source.SpliceMaps()
	if set == nil {
		return
	}
	counters, err := set.Counters()
	failed := err != nil
	for r, n := range counters {
		name := maps.CounterName(r)
		ch <- prometheus.MustNewConstMetric(c.events, prometheus.CounterValue, float64(n.Events), name)
		ch <- prometheus.MustNewConstMetric(c.eventBytes, prometheus.CounterValue, float64(n.Bytes), name)
	}
	c.source.SpliceBackends(func(label string, id uint32) {
		l, ok, err := set.Latency(id)
		if err != nil {
			failed = true
		}
		if !ok {
			return
		}
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(l.Bytes), label)
		ch <- prometheus.MustNewConstMetric(c.chunks, prometheus.CounterValue, float64(l.Chunks), label)
		ch <- gapHistogram(c.gap, &l, label)
	})
	ch <- prometheus.MustNewConstMetric(c.failed, prometheus.GaugeValue, one(failed))
}

// The bounds of the exported gap histogram: from 2^16 ns = 66 us to 2^35 ns = 34 s.
const firstGapBucket, lastGapBucket = 15, 34

// gapHistogram turns the kernel's log2 histogram into a metric.
func gapHistogram(d *prometheus.Desc, l *maps.Latency, label string) prometheus.Metric {
	buckets := map[float64]uint64{}
	var sum uint64
	for i, n := range l.Gaps {
		sum += n
		if i >= firstGapBucket && i <= lastGapBucket {
			buckets[maps.Bound(i).Seconds()] = sum
		}
	}
	return prometheus.MustNewConstHistogram(d, sum, l.Sum.Seconds(), buckets, label)
}

// brief keeps a label value short: the first line, and no more of it than a
// metric should carry. The whole reason stands in the status and in the log.
func brief(s string) string {
	for i, r := range s {
		if r == '\n' || i > 100 {
			return s[:i]
		}
	}
	return s
}

// GapQuantiles returns the quantiles of the gaps between spliced chunks, or nil.
func GapQuantiles(l *maps.Latency) *Quantiles {
	n := l.Count()
	if n == 0 {
		return nil
	}
	at := func(q float64) float64 { return l.Quantile(q).Round(time.Microsecond).Seconds() }
	return &Quantiles{Count: n, P50: at(.5), P90: at(.9), P99: at(.99)}
}
