package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tautline/tautline/userspace/decide"
)

// Fleet is what the collector reads at scrape time. *decide.Fleet is one.
type Fleet interface {
	Snapshot(now decide.Instant, dst []decide.BackendState) []decide.BackendState
	Counts() decide.Counts
	Shared() bool
	Unlike() bool
}

// Collector shows a fleet's accounts as metrics, read when they are scraped.
type Collector struct {
	fleet Fleet
	clock func() decide.Instant
	name  func(decide.Spec) string

	affinity, decisions, shared, unlike        *prometheus.Desc
	inflight, uncached, queue, admitted, index *prometheus.Desc
	size                                       *prometheus.Desc
	matched, prompt, cached, usage             *prometheus.Desc
}

// NewCollector shows fleet. name gives a backend's label value.
func NewCollector(fleet Fleet, clock func() decide.Instant, name func(decide.Spec) string) *Collector {
	perBackend := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"backend"}, nil)
	}
	return &Collector{
		fleet: fleet, clock: clock, name: name,
		affinity:  prometheus.NewDesc("grid_route_prefix_affinity_total", "Decisions among at least two backends, by outcome.", []string{"outcome"}, nil),
		decisions: prometheus.NewDesc("tautline_decisions_total", "All decisions, by policy and outcome.", []string{"policy", "outcome"}, nil),
		shared:    prometheus.NewDesc("tautline_backends_shared", "1 when others send requests to the backends too, as polls show.", nil, nil),
		unlike:    prometheus.NewDesc("tautline_prompts_unlike", "1 when there is a model whose prompts hardly ever begin alike, as usage tells; learned under priced-spread.", nil, nil),
		inflight:  perBackend("tautline_inflight_requests", "Requests sent and not finished."),
		uncached:  perBackend("tautline_inflight_uncached_tokens", "Prompt tokens in flight that the backend must prefill."),
		queue:     perBackend("tautline_queue_depth", "Worst polled queue depth in the window; absent while unmeasured."),
		admitted:  perBackend("tautline_backend_admitted", "1 when the backend admits new requests."),
		index:     perBackend("tautline_prefix_index_entries", "Keys that the index holds for the backend."),
		size:      perBackend("tautline_prefix_index_size_factor", "Capacity of the index over what the engine or the configuration says; learned under priced-spread."),
		matched:   perBackend("tautline_matched_tokens_total", "Prompt tokens sent there that the index expected in its cache."),
		prompt:    perBackend("tautline_prompt_tokens_total", "Prompt tokens sent there, estimated."),
		cached:    perBackend("tautline_reported_cached_tokens_total", "Prompt tokens that the engine reported as served from its cache."),
		usage:     perBackend("tautline_reported_prompt_tokens_total", "Prompt tokens that the engine reported beside those."),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counts := c.fleet.Counts()
	var affinity [decide.NumOutcomes]uint64
	for p := range counts.Decisions {
		for o, n := range counts.Decisions[p] {
			affinity[o] += n
			if n > 0 {
				counter(c.decisions, float64(n), decide.Policy(p).String(), decide.Outcome(o).String())
			}
		}
	}
	for o, n := range affinity {
		if decide.Outcome(o).Affinity() {
			counter(c.affinity, float64(n), decide.Outcome(o).String())
		}
	}
	gauge(c.shared, one(c.fleet.Shared()))
	gauge(c.unlike, one(c.fleet.Unlike()))
	seen := map[string]bool{}
	for _, b := range c.fleet.Snapshot(c.clock(), nil) {
		name := c.name(b.Spec)
		if seen[name] { // a reload replaces it by another of its name: for a moment there are two
			continue
		}
		seen[name] = true
		gauge(c.inflight, float64(b.InFlight), name)
		gauge(c.uncached, float64(b.Uncached), name)
		if b.Measured {
			gauge(c.queue, float64(b.Queue), name)
		}
		gauge(c.admitted, one(b.Admitted), name)
		gauge(c.index, float64(b.IndexEntries), name)
		gauge(c.size, b.SizeFactor, name)
		counter(c.matched, float64(b.MatchedTokens), name)
		counter(c.prompt, float64(b.PromptTokens), name)
		counter(c.cached, float64(b.CachedTokens), name)
		counter(c.usage, float64(b.UsageTokens), name)
	}
}

// one is how a gauge says yes.
func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
