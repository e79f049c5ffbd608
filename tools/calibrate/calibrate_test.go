package calibrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fake is an engine of a known rate. It serves one prompt at a time.
type fake struct {
	rate     float64 // tokens per second
	metrics  string  // page; "" = 404
	cached   int     // reported
	count    func(prompt json.RawMessage) int
	requests atomic.Int32
	time     atomic.Int64 // the engine's work moves this clock, so that no test waits
	prompts  map[string]bool
	twice    bool // a prompt came twice
}

func (f *fake) start(t *testing.T) string {
	t.Helper()
	f.prompts = map[string]bool{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if f.metrics == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, f.metrics)
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"first"},{"id":"second"}]}`)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Model  string
			Prompt json.RawMessage
			Max    int `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Max != 1 {
			http.Error(w, "bad body", http.StatusBadRequest)
			return
		}
		f.requests.Add(1)
		if f.prompts[string(body.Prompt)] {
			f.twice = true
		}
		f.prompts[string(body.Prompt)] = true
		n := f.count(body.Prompt)
		f.time.Add(int64(float64(n) / f.rate * 1e9))
		fmt.Fprintf(w, `{"model":%q,"usage":{"prompt_tokens":%d,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":%d}}}`, body.Model, n, f.cached)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func countIDs(p json.RawMessage) int {
	var ids []int
	if json.Unmarshal(p, &ids) != nil {
		return 0
	}
	return len(ids)
}

// countLetters is a tokenizer that makes three letters one token.
func countLetters(p json.RawMessage) int { return len(p) / 3 }

const quiet = "# HELP x\nvllm:num_requests_running{engine=\"0\",model_name=\"a b\"} 0.0\nvllm:num_requests_waiting{engine=\"0\"} 0.0\n"

func (f *fake) clock() time.Duration { return time.Duration(f.time.Load()) }

func TestFindsTheRate(t *testing.T) {
	for _, words := range []bool{false, true} {
		f := &fake{rate: 40000, metrics: quiet, count: countIDs}
		if words {
			f.count = countLetters
		}
		r, err := Run(context.Background(), Options{
			URL: f.start(t) + "/", Tokens: 4000, Samples: 9, Warmup: 1, Words: words, Seed: 1, Tolerance: 14 * time.Second, clock: f.clock,
		})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(r.RPeak-40000) > 1 {
			t.Errorf("words %v: R_peak %.0f, want 40000", words, r.RPeak)
		}
		if off := math.Abs(float64(r.Tokens)/4000 - 1); off > 0.02 {
			t.Errorf("words %v: prompts of %d tokens, want 4000", words, r.Tokens)
		}
		if r.Model != "first" || len(r.Seconds) != 9 || f.twice {
			t.Errorf("words %v: model %q, %d samples, a prompt came twice: %v", words, r.Model, len(r.Seconds), f.twice)
		}
		if want := int64(math.Round(r.RPeak * 14)); r.Tau != want || math.Abs(r.Chunks-float64(want)/float64(r.Tokens)) > 1e-9 {
			t.Errorf("words %v: tau %d, %.3f chunks", words, r.Tau, r.Chunks)
		}
	}
}

func TestRefusesABusyEngine(t *testing.T) {
	for name, page := range map[string]string{
		"vllm running":   "vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_running{engine=\"1\"} 2\n",
		"vllm waiting":   "vllm:num_requests_waiting 1\nvllm:num_requests_running 0\n",
		"sglang running": "sglang:num_running_reqs{model_name=\"x} y\"} 3.0\n",
		"sglang queue":   "sglang:num_queue_reqs{} 1e0 1700000000\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{rate: 1e6, metrics: page, count: countIDs}
			_, err := Run(context.Background(), Options{URL: f.start(t), Model: "m"})
			if !errors.Is(err, ErrBusy) || f.requests.Load() != 0 {
				t.Errorf("error %v after %d requests, want ErrBusy after none", err, f.requests.Load())
			}
		})
	}
}

func TestRefusesWhatItCannotSee(t *testing.T) {
	for name, page := range map[string]string{
		"no metrics": "", "other metrics": "vllm:num_requests_running_total 0\nup 1\n", "not a number": "vllm:num_requests_running NaN\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{rate: 1e6, metrics: page, count: countIDs}
			url := f.start(t)
			if _, err := Run(context.Background(), Options{URL: url, Model: "m"}); !errors.Is(err, ErrUnseen) {
				t.Errorf("error %v, want ErrUnseen", err)
			}
			if _, err := Run(context.Background(), Options{URL: url, Model: "m", Unseen: true, Samples: 3}); err != nil {
				t.Errorf("told to go on unseen: %v", err)
			}
		})
	}
}

func TestRefusesAnswersFromTheCache(t *testing.T) {
	f := &fake{rate: 1e6, metrics: quiet, count: countIDs, cached: 4096}
	if _, err := Run(context.Background(), Options{URL: f.start(t)}); !errors.Is(err, ErrCached) {
		t.Errorf("error %v, want ErrCached", err)
	}
}

func TestRefusesAnotherCountOfTokens(t *testing.T) {
	f := &fake{rate: 1e6, metrics: quiet, count: func(p json.RawMessage) int { return countIDs(p) / 2 }}
	if _, err := Run(context.Background(), Options{URL: f.start(t)}); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("error %v, want one that names the engine's count", err)
	}
}

func TestNamesTheEnginesError(t *testing.T) {
	f := &fake{rate: 1e6, metrics: quiet, count: countIDs}
	url := f.start(t)
	_, err := Run(context.Background(), Options{URL: url, Metrics: url + "/nowhere", Model: "m"})
	if err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("error %v, want one that names the status", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{}, {URL: "engine:8000"}, {URL: "http://e", Tokens: 3}, {URL: "http://e", Samples: 2},
		{URL: "http://e", Vocabulary: 10}, {URL: "http://e", Tolerance: -1},
	} {
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestStopsWhenTold(t *testing.T) {
	f := &fake{rate: 1000, metrics: quiet, count: countIDs}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Options{URL: f.start(t)}); err == nil {
		t.Error("a cancelled run succeeds")
	}
}

func TestText(t *testing.T) {
	r := &Result{Model: "m", Tokens: 8192, Seconds: make([]float64, 20), Median: 0.4, Low: 0.39, High: 0.41, RPeak: 20480, Tolerance: 14, Tau: 286720, Chunks: 35}
	var b bytes.Buffer
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"20480 tokens/s", "286720", "35.0 chunks", "peak_prefill_tokens_per_second: 20480", "ttft_tolerance: 14s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("text lacks %q:\n%s", want, b.String())
		}
	}
	if r.Unsteady() || strings.Contains(b.String(), "warning") {
		t.Error("5 % is no reason to warn")
	}
	r.High = 0.6
	if !r.Unsteady() {
		t.Error("samples from 0.39 to 0.60 s are not steady")
	}
}
