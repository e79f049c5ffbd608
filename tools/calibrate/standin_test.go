package calibrate

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tautline/tautline/tools/modelserver"
)

// inside carries requests to a handler in the same bubble, where time stands
// still until everybody waits: no connection, and no noise of the machine.
type inside struct{ http.Handler }

func (i inside) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w.Result(), nil
}

// The stand-in engine prefills at a known rate. With its defaults, 5 requests to
// warm up and 20 samples, calibrate finds it to one per cent of the five.
func TestFindsTheRateOfTheStandIn(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine string
		rate   float64
		batch  int
		o      Options
	}{
		{"the seed's", modelserver.VLLM, 20480, 8192, Options{}},
		{"slow", modelserver.VLLM, 1500, 8192, Options{}},
		{"fast", modelserver.VLLM, 120000, 8192, Options{}},
		{"SGLang", modelserver.SGLang, 20480, 8192, Options{}},
		{"small batches", modelserver.VLLM, 20480, 2048, Options{Tokens: 2048}},
		{"words", modelserver.VLLM, 20480, 8192, Options{Words: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := modelserver.Default()
				cfg.Engine, cfg.PrefillRate, cfg.MaxBatchedTokens = c.engine, c.rate, c.batch
				s, err := modelserver.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				c.o.URL, c.o.Client, c.o.Seed = "http://engine", &http.Client{Transport: inside{s}}, 1
				r, err := Run(context.Background(), c.o)
				if err != nil {
					t.Fatal(err)
				}
				off := r.RPeak/c.rate - 1
				t.Logf("R_peak %.0f, true %.0f: off by %+.2f %%", r.RPeak, c.rate, 100*off)
				if math.Abs(off) > 0.01 || len(r.Seconds) != 20 || r.Unsteady() {
					t.Errorf("R_peak %.0f of %d samples, true %.0f", r.RPeak, len(r.Seconds), c.rate)
				}
			})
		})
	}
}

// What others ask of the engine meanwhile would be measured too, so a busy engine
// is refused, not only at the start.
func TestRefusesAStandInThatGetsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := modelserver.Default()
		cfg.TokenDelay, cfg.AnswerTokens = time.Second, 600
		s, err := modelserver.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			time.Sleep(5 * time.Second) // the eleventh request or so
			body := strings.NewReader(`{"model":"stand-in","prompt":"hello","max_tokens":600}`)
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", body)
			r.Header.Set("Content-Type", "application/json")
			s.ServeHTTP(httptest.NewRecorder(), r)
		}()
		_, err = Run(ctx, Options{URL: "http://engine", Client: &http.Client{Transport: inside{s}}, Seed: 1})
		if !errors.Is(err, ErrBusy) {
			t.Errorf("error %v, want ErrBusy", err)
		}
		cancel()
		<-ended
	})
}
