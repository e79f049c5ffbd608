package telemetry

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/proxy"
)

// ttftBuckets reach from a cached prompt on a fast engine to a fleet in trouble,
// in seconds.
var ttftBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 60, 120, 300}

// heldBuckets reach from the next answer's end to the longest routing.hold that clients
// put up with, in seconds.
var heldBuckets = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}

// routeBuckets are for the agent's own work between a request read and written.
var routeBuckets = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .1, 1}

// removed is the label of what ends on a backend that has left: no backend can
// have this name, and no request goes uncounted.
const removed = "(removed)"

// Recorder counts what the data path reports. It implements proxy.Recorder.
// Only backends between Add and Forget have series of their own.
type Recorder struct {
	mu   sync.RWMutex // held while a series is used, so that Forget is final
	live map[string]series

	requests *prometheus.CounterVec
	refusals *prometheus.CounterVec
	retries  *prometheus.CounterVec
	aborts   *prometheus.CounterVec
	holds    *prometheus.CounterVec
	held     prometheus.Histogram
	ttft     *prometheus.HistogramVec
	route    prometheus.Histogram
}

// series are what nearly every request of a backend needs; the vectors look it up
// by hashing labels.
type series struct {
	ttft prometheus.Observer
	ok   prometheus.Counter // requests with code 200
}

var _ proxy.Recorder = (*Recorder)(nil)

// NewRecorder returns a Recorder registered with reg.
func NewRecorder(reg prometheus.Registerer) *Recorder {
	r := &Recorder{
		live: map[string]series{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tautline_requests_total", Help: "Requests ended, by the backend that answered (empty: none; (removed): one that a reload took away meanwhile) and the status sent; 499 when the client left before one was.",
		}, []string{"backend", "code"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tautline_refusals_total", Help: "Requests that the agent answered itself, by reason.",
		}, []string{"reason"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tautline_retries_total", Help: "Requests sent again because nothing had reached the backend, or nothing that may not be sent twice, or because it refused with 503, by reason.",
		}, []string{"reason"}),
		aborts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tautline_aborts_total", Help: "Requests broken off, by the side that did.",
		}, []string{"side"}),
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tautline_holds_total", Help: "Requests held in the agent because no backend had KV memory, by how that ended; full and memory: not held, since too many were or bodies took too much memory.",
		}, []string{"reason"}),
		held: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tautline_held_seconds", Help: "How long requests were held in the agent.", Buckets: heldBuckets,
		}),
		ttft: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tautline_ttft_seconds", Help: "Request head read to first token of a streamed answer.", Buckets: ttftBuckets,
		}, []string{"backend"}),
		route: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tautline_route_seconds", Help: "Request read to request written, less the time it was held.", Buckets: routeBuckets,
		}),
	}
	reg.MustRegister(r.requests, r.refusals, r.retries, r.aborts, r.holds, r.held, r.ttft, r.route)
	for _, why := range proxy.Refusals() {
		if why != proxy.RefusalNone {
			r.refusals.WithLabelValues(why.String())
		}
	}
	for _, why := range proxy.Retries() {
		if why != proxy.RetryNone {
			r.retries.WithLabelValues(why.String())
		}
	}
	for _, how := range proxy.Holds() {
		if how != proxy.HoldNone {
			r.holds.WithLabelValues(how.String())
		}
	}
	for _, side := range proxy.Aborts() {
		if side != proxy.AbortNone {
			r.aborts.WithLabelValues(side.String())
		}
	}
	return r
}

// clientClosed is the code that stands for a client that left before the head.
const clientClosed = 499

// Decided does nothing: the fleet counts its decisions itself.
func (r *Recorder) Decided(decide.Decision) {}

// FirstToken observes the time to the first token; a removed backend's is not
// worth a series.
func (r *Recorder) FirstToken(backend string, ttft time.Duration) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if s, ok := r.live[backend]; ok {
		s.ttft.Observe(ttft.Seconds())
	}
}

// Held counts a request that was held, or would have been.
func (r *Recorder) Held(how proxy.Hold, waited time.Duration) {
	r.holds.WithLabelValues(how.String()).Inc()
	if how.Waited() {
		r.held.Observe(waited.Seconds())
	}
}

// HeldFor returns the quantiles of how long requests were held, or nil.
func (r *Recorder) HeldFor() *Quantiles { return quantiles(r.held) }

// Retried counts a request that is sent again.
func (r *Recorder) Retried(why proxy.Retry) { r.retries.WithLabelValues(why.String()).Inc() }

// Finished counts a request's end.
func (r *Recorder) Finished(s proxy.Summary) {
	code := s.Code
	if code == 0 {
		code = clientClosed
	}
	r.ended(s.Backend, code)
	if s.Refusal != proxy.RefusalNone {
		r.refusals.WithLabelValues(s.Refusal.String()).Inc()
	}
	if s.Abort != proxy.AbortNone {
		r.aborts.WithLabelValues(s.Abort.String()).Inc()
	}
	if s.Route > 0 {
		r.route.Observe(s.Route.Seconds())
	}
}

// ended counts a request, under its backend if that is still there.
func (r *Recorder) ended(backend string, code int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s, ok := r.live[backend]
	switch {
	case ok && code == http.StatusOK:
		s.ok.Inc()
		return
	case !ok && backend != "":
		backend = removed
	}
	r.requests.WithLabelValues(backend, strconv.Itoa(code)).Inc()
}

// Add gives a backend series of its own, until Forget.
func (r *Recorder) Add(backend string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[backend] = series{
		ttft: r.ttft.WithLabelValues(backend),
		ok:   r.requests.WithLabelValues(backend, strconv.Itoa(http.StatusOK)),
	}
}

// Forget drops the series of a backend that left. Requests that still run there
// bring none of them back.
func (r *Recorder) Forget(backend string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, backend)
	l := prometheus.Labels{"backend": backend}
	r.requests.DeletePartialMatch(l)
	r.ttft.DeletePartialMatch(l)
}

// TTFT returns the quantiles of a backend's time to first token, or nil.
func (r *Recorder) TTFT(backend string) *Quantiles {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if _, ok := r.live[backend]; !ok {
		return nil
	}
	return quantiles(r.ttft.WithLabelValues(backend))
}
