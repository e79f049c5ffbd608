// Package calibrate measures how fast an inference engine prefills: it sends
// prompts of exactly B random tokens, which no cache can hold, one at a time to
// an idle engine, and takes the median time to the first token, T(B). From it
// follow R_peak = B / T(B) and the saturation limit tau = R_peak x T_max.
//
// B should be the engine's max_num_batched_tokens: that is the batch which it
// prefills at its peak rate.
package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The errors that a caller may want to tell apart.
var (
	// ErrBusy: the engine serves other requests, so a measurement would be of them too.
	ErrBusy = errors.New("the engine is busy")
	// ErrUnseen: the metrics do not say whether the engine is busy.
	ErrUnseen = errors.New("the engine's metrics do not tell whether it is busy")
	// ErrCached: the engine found tokens of a random prompt in its cache.
	ErrCached = errors.New("the engine answered from its cache")
)

// DefaultTolerance is the agent's own default, so that tau is what an agent makes
// of the measured rate when nothing else is said. The article's 286,720 tokens
// are for 14 s.
const DefaultTolerance = 18 * time.Second

// Options say what to measure. Only URL is required.
type Options struct {
	URL        string        // of the engine, without /v1
	Metrics    string        // "" = URL + /metrics
	Model      string        // "" = the engine's first
	APIKey     string        // sent as a bearer token; "" = none
	Tokens     int           // B; 0 = 8192
	Warmup     int           // requests before the samples; 0 = 5, negative = none
	Samples    int           // 0 = 20; at least 3
	Tolerance  time.Duration // T_max, the agent's routing.ttft_tolerance; 0 = DefaultTolerance
	Words      bool          // random words instead of token ids, for engines that refuse ids
	Vocabulary int           // token ids are drawn below it; 0 = 30000
	Unseen     bool          // go on when the metrics do not tell whether the engine is busy
	Seed       uint64        // of the random prompts; 0 = by the clock
	Timeout    time.Duration // per request; 0 = 2 minutes
	Client     *http.Client  // nil = one of its own
	Progress   io.Writer     // nil = none

	clock func() time.Duration // for tests; nil = the real one
}

// Validate says what is wrong with the options, which Run would refuse.
func (o Options) Validate() error {
	_, err := o.withDefaults()
	return err
}

func (o Options) withDefaults() (Options, error) {
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	set(&o.Tokens, 8192)
	set(&o.Warmup, 5)
	set(&o.Samples, 20)
	set(&o.Vocabulary, 30000)
	if o.Tolerance == 0 {
		o.Tolerance = DefaultTolerance
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano())
	}
	if o.Client == nil {
		o.Client = &http.Client{Transport: &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 1}}
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.Metrics == "" {
		o.Metrics = o.URL + "/metrics"
	}
	web := func(url string) bool { return strings.HasPrefix(url, "http://") || strings.HasPrefix(url, "https://") }
	switch {
	case !web(o.URL):
		return o, fmt.Errorf("engine %q: must be an http or https URL", o.URL)
	case !web(o.Metrics):
		return o, fmt.Errorf("metrics %q: must be an http or https URL", o.Metrics)
	case o.Tokens < 64:
		return o, fmt.Errorf("tokens %d: must be at least 64, or the engine's fixed costs are measured", o.Tokens)
	case o.Samples < 3:
		return o, fmt.Errorf("samples %d: must be at least 3", o.Samples)
	case o.Vocabulary < 1000:
		return o, fmt.Errorf("vocabulary %d: must be at least 1000", o.Vocabulary)
	case o.Tolerance < 0:
		return o, fmt.Errorf("tolerance %v: must not be negative", o.Tolerance)
	}
	return o, nil
}

// Result is what was measured.
type Result struct {
	Model     string    `json:"model"`
	Tokens    int       `json:"tokens"`  // B, as the engine counted them (median)
	Seconds   []float64 `json:"seconds"` // the samples, in their order
	Median    float64   `json:"median_seconds"`
	Low       float64   `json:"low_seconds"`  // a tenth of the samples is below
	High      float64   `json:"high_seconds"` // a tenth is above
	RPeak     float64   `json:"peak_prefill_tokens_per_second"`
	Tolerance float64   `json:"tolerance_seconds"`
	Tau       int64     `json:"tau_tokens"`
	Chunks    float64   `json:"tau_chunks"` // tau in batches of B
}

// Run measures. It refuses an engine that is busy at the start or whenever it
// looks again, which it does between the samples.
func Run(ctx context.Context, o Options) (*Result, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &engine{Options: o, rnd: rand.New(rand.NewPCG(o.Seed, 0x63616c6962)), clock: o.clock}
	if e.clock == nil {
		start := time.Now()
		e.clock = func() time.Duration { return time.Since(start) }
	}
	if err := e.idle(ctx); err != nil {
		return nil, err
	}
	if e.Model == "" {
		if e.Model, err = e.firstModel(ctx); err != nil {
			return nil, err
		}
	}
	if err := e.fit(ctx); err != nil {
		return nil, err
	}
	r := &Result{Model: e.Model, Tolerance: o.Tolerance.Seconds()}
	var rates, counts []float64
	for i := -max(o.Warmup, 0); i < o.Samples; i++ {
		if i >= 0 && i%5 == 0 {
			if err := e.idle(ctx); err != nil {
				return nil, err
			}
		}
		s, err := e.sample(ctx)
		if err != nil {
			return nil, err
		}
		if i < 0 {
			continue
		}
		r.Seconds = append(r.Seconds, s.seconds)
		rates = append(rates, float64(s.tokens)/s.seconds)
		counts = append(counts, float64(s.tokens))
		if o.Progress != nil {
			fmt.Fprintf(o.Progress, "\r%d of %d samples, last %.3f s", i+1, o.Samples, s.seconds)
		}
	}
	if o.Progress != nil {
		fmt.Fprintln(o.Progress)
	}
	r.Tokens = int(quantile(counts, .5))
	r.Median, r.Low, r.High = quantile(r.Seconds, .5), quantile(r.Seconds, .1), quantile(r.Seconds, .9)
	r.RPeak = quantile(rates, .5)
	r.Tau = int64(math.Round(r.RPeak * r.Tolerance))
	r.Chunks = float64(r.Tau) / float64(r.Tokens)
	return r, nil
}

// quantile interpolates between the values around it.
func quantile(values []float64, q float64) float64 {
	v := slices.Sorted(slices.Values(values))
	at := q * float64(len(v)-1)
	lo := int(at)
	hi := min(lo+1, len(v)-1)
	return v[lo] + (at-float64(lo))*(v[hi]-v[lo])
}

// Unsteady says that the samples differ so much that something else was going on.
func (r *Result) Unsteady() bool { return r.High-r.Low > 0.2*r.Median }

// Text writes the result and the lines for the configuration.
func (r *Result) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "model %s, %d samples of %d tokens\n", r.Model, len(r.Seconds), r.Tokens)
	fmt.Fprintf(&b, "T(B)     %.3f s (a tenth below %.3f, a tenth above %.3f)\n", r.Median, r.Low, r.High)
	fmt.Fprintf(&b, "R_peak   %.0f tokens/s\n", r.RPeak)
	fmt.Fprintf(&b, "tau      %d tokens for a tolerance of %g s, %.1f chunks of %d\n", r.Tau, r.Tolerance, r.Chunks, r.Tokens)
	if r.Unsteady() {
		b.WriteString("warning: the samples differ by more than a fifth; measure again when the engine and its host are quiet\n")
	}
	fmt.Fprintf(&b, "\nrouting:\n  peak_prefill_tokens_per_second: %.0f\n  ttft_tolerance: %gs\n", r.RPeak, r.Tolerance)
	_, err := io.WriteString(w, b.String())
	return err
}
