package poll

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/load"
)

func TestMetricsAndModelsReachTheSink(t *testing.T) {
	e := healthy(t)
	p, ear := poller(t, fast(), e.URL+"/")
	if m := ear.next(t, models); m.slot != 3 || !slices.Equal(m.models, []string{"a", "b"}) {
		t.Errorf("models %v of slot %d, want [a b] of 3", m.models, m.slot)
	}
	first := ear.next(t, observed)
	if first.slot != 3 || first.sample.Waiting != 2 || !first.sample.HasQueue {
		t.Errorf("observed %+v", first)
	}
	for range 3 {
		if x := ear.next(t, observed); x.at <= first.at {
			t.Errorf("time went from %v to %v", first.at, x.at)
		}
	}
	if n := e.count("/v1/models"); n != 1 {
		t.Errorf("models asked for %d times, want once", n)
	}
	if n := e.conns.Load(); n != 1 {
		t.Errorf("%d connections, want one that is kept", n)
	}
	s := statusOf(p)
	if s.Name != "gpu3" || s.Engine != VLLM || s.Source != "metrics" || s.Failures != 0 || s.Polls < 4 {
		t.Errorf("status %+v", s)
	}
	if here, nowhere := p.Engine(3), p.Engine(4); here != VLLM || nowhere != "" {
		t.Errorf("engine %q, and %q where nothing is polled", here, nowhere)
	}
}

// TestTimeOfAPoll: what a sink is told happened after the time that goes with it, so that
// it can tell what the engine cannot have known.
func TestTimeOfAPoll(t *testing.T) {
	e := healthy(t)
	x, ear := poller(t, fast(), e.URL)
	var looked atomic.Int64 // when the engine was asked last
	e.set("/v1/models", func(w http.ResponseWriter, r *http.Request) { x.clock(); says(listing)(w, r) })
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		told   func(told) bool
	}{
		"observed": {says(page), func(x told) bool { return observed(x) && x.sample.HasQueue }},
		"failed":   {status(500), failed},
		"hung up":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, func(x told) bool { return x.hung }},
	} {
		e.set("/metrics", func(w http.ResponseWriter, r *http.Request) {
			looked.Store(int64(x.clock()))
			c.answer(w, r)
		})
		testutil.Eventually(t, "the engine is asked", func() bool { return looked.Load() > 0 })
		for range 3 {
			if got, at := ear.next(t, c.told), time.Duration(looked.Load()); got.at >= at {
				t.Errorf("%s: told of %v, the engine was asked at %v", name, got.at, at)
			}
		}
	}
}

func TestNoCompressionIsAskedFor(t *testing.T) {
	e := healthy(t)
	got := make(chan string, 100)
	e.set("/metrics", func(w http.ResponseWriter, r *http.Request) {
		select {
		case got <- r.Header.Get("Accept-Encoding"):
		default:
		}
		says(page)(w, r)
	})
	_, ear := poller(t, fast(), e.URL)
	ear.next(t, observed)
	if enc := <-got; enc != "" {
		t.Errorf("Accept-Encoding %q, want none", enc)
	}
}

func TestConfiguredModelsAreNotLearned(t *testing.T) {
	e := healthy(t)
	_, ear := poller(t, fast(), e.URL, func(x *Target) { x.Models = []string{"z"} })
	for range 3 {
		ear.next(t, observed)
	}
	if n := e.count("/v1/models"); n != 0 {
		t.Errorf("models asked for %d times, want never", n)
	}
}

func TestBackendThatIsDownComesBack(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	p, ear := poller(t, fast(), "http://"+addr)
	ear.next(t, failed)
	for range 3 { // one alone says nothing about the backend; none is told of twice
		if x := ear.next(t, func(told) bool { return true }); !x.dead || x.failed {
			t.Errorf("after a failure %+v, want that nobody is there", x)
		}
	}
	if s := statusOf(p); s.Errors[ReasonConnect] < 2 || s.Failing < 2 || s.Last == "" {
		t.Errorf("status %+v, want connect errors", s)
	}
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			says(listing)(w, r)
			return
		}
		says(page)(w, r)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	ear.next(t, models)
	ear.next(t, observed)
	if s := statusOf(p); s.Failing != 0 {
		t.Errorf("status %+v, want no failing poll", s)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-done
	ear.next(t, failed)
}

// TestBackendThatHangsUp on polls may serve requests: it is not taken for one where
// nobody is, which no request would be sent to for as long as polls fail. But something
// that only accepts, in front of a dead one, must not pass for well either.
func TestBackendThatHangsUp(t *testing.T) {
	for name, hangUp := range map[string]http.HandlerFunc{
		"without an answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"within the head": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 2*headBytes))
			says(page)(w, nil)
		},
	} {
		e := healthy(t)
		e.set("/metrics", hangUp)
		_, ear := poller(t, fast(), e.URL)
		var got []told
		for range 5 {
			got = append(got, ear.next(t, func(told) bool { return true }))
		}
		for i, x := range got { // failed, failed and hung, failed and hung
			if hung := i == 2 || i == 4; x.dead || x.hung != hung || x.failed == hung {
				t.Errorf("%s: told %+v at %d", name, x, i)
			}
		}
	}
}

// TestBackendThatMisbehaves: each costs a poll, is counted under its reason,
// and does not keep the next good answer away.
func TestBackendThatMisbehaves(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, tc := range map[string]struct {
		metrics http.HandlerFunc
		reason  Reason
		timeout time.Duration
	}{
		"hangs before the head": {
			metrics: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			reason:  ReasonTimeout, timeout: 50 * time.Millisecond,
		},
		"drips": {
			metrics: func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					_, _ = io.WriteString(w, "#")
					w.(http.Flusher).Flush()
					time.Sleep(time.Millisecond)
				}
			},
			reason: ReasonTimeout, timeout: 50 * time.Millisecond,
		},
		"cuts the body": {
			metrics: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "vllm:num_requests_running 1\n")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			},
			reason: ReasonBroken,
		},
		"closes without an answer": {
			metrics: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			reason:  ReasonConnect,
		},
		"is broken":   {metrics: status(500), reason: ReasonStatus},
		"is starting": {metrics: status(503), reason: ReasonStatus},
		"talks no http": {
			metrics: func(w http.ResponseWriter, _ *http.Request) {
				c, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("\x00\xff\xfe garbage\r\n\r\n"))
				_ = c.Close()
			},
			reason: ReasonConnect,
		},
		"sends an endless head": {
			metrics: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Long", long)
				says(page)(w, nil)
			},
			reason: ReasonConnect,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := healthy(t)
			e.set("/metrics", tc.metrics)
			p := fast()
			if tc.timeout > 0 {
				p.Timeout = tc.timeout
			}
			x, ear := poller(t, p, e.URL)
			ear.next(t, failed)
			if s := statusOf(x); s.Errors[tc.reason] == 0 {
				t.Errorf("counted %v with %q, want under %v", s.Errors, s.Last, tc.reason)
			}
			if n := e.count("/health"); n != 0 {
				t.Errorf("health asked for %d times: a backend that fails must not be asked twice", n)
			}
			p.Timeout = 10 * time.Second
			if err := x.SetParams(p); err != nil {
				t.Fatal(err)
			}
			e.set("/metrics", says(page))
			ear.next(t, func(x told) bool { return observed(x) && x.sample.HasQueue })
		})
	}
}

// TestBackendWithoutUsableMetrics is well when its health page says so.
func TestBackendWithoutUsableMetrics(t *testing.T) {
	huge := bytes.Repeat([]byte("# nothing to see\n"), 5*lineBytes/17)
	for name, tc := range map[string]struct {
		metrics http.HandlerFunc
		reason  Reason
	}{
		"none":         {status(404), ReasonStatus},
		"not for us":   {status(401), ReasonStatus},
		"html":         {says("<html><body>Welcome</body></html>"), ReasonGarbage},
		"binary":       {says(strings.Repeat("\x00\x01\xff\xfe", 30000)), ReasonGarbage},
		"empty":        {says(""), ReasonGarbage},
		"other engine": {says("tgi_queue_size 3\n"), ReasonGarbage},
		"one long line": {
			says("vllm:num_requests_running{a=\"" + strings.Repeat("x", 3*lineBytes) + "\"} 1"), ReasonGarbage,
		},
		"huge":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(huge) }, ReasonTooLarge},
		"redirecting": {http.RedirectHandler("/elsewhere", http.StatusFound).ServeHTTP, ReasonRedirect},
	} {
		t.Run(name, func(t *testing.T) {
			e := healthy(t)
			e.set("/metrics", tc.metrics)
			p := fast()
			p.MaxBody = int64(len(huge)) - 1
			x, ear := poller(t, p, e.URL)
			got := ear.next(t, func(x told) bool { return observed(x) || failed(x) })
			if got.failed || got.sample != (load.Sample{}) {
				t.Errorf("told %+v, want well without figures", got)
			}
			ear.next(t, observed)
			s := statusOf(x)
			if s.Source != "health" || s.Errors[tc.reason] != 1 || s.Failures != 0 {
				t.Errorf("status %+v, want source health and one error by %v", s, tc.reason)
			}
			if n := e.count("/elsewhere"); n != 0 {
				t.Error("a redirect was followed")
			}
			e.set("/health", status(503))
			ear.next(t, failed)
		})
	}
}

func TestServerWithNothingButModels(t *testing.T) {
	e := newEngine(t)
	e.set("/v1/models", says(listing))
	x, ear := poller(t, fast(), e.URL)
	ear.next(t, models)
	if got := ear.next(t, observed); got.sample != (load.Sample{}) {
		t.Errorf("observed %+v, want no figures", got.sample)
	}
	if s := statusOf(x); s.Source != "models" {
		t.Errorf("source %q, want models", s.Source)
	}
}

func TestLongUselessLineDoesNotHideTheRest(t *testing.T) {
	e := healthy(t)
	e.set("/metrics", says("other{a=\""+strings.Repeat("x", 5*lineBytes)+"\"} 1\n"+page))
	_, ear := poller(t, fast(), e.URL)
	if got := ear.next(t, observed); !got.sample.HasQueue || got.sample.Waiting != 2 {
		t.Errorf("observed %+v, want the queue after the long line", got.sample)
	}
}

func TestRestartLearnsTheModelsAnew(t *testing.T) {
	for name, again := range map[string]string{
		"by start time": strings.Replace(page, "100", "200", 1),
		"by counter":    strings.Replace(page, "process_start_time_seconds 100", "vllm:prompt_tokens_total 1", 1),
	} {
		t.Run(name, func(t *testing.T) {
			e := healthy(t)
			if name == "by counter" {
				e.set("/metrics", says(strings.Replace(again, "total 1", "total 2", 1)))
			}
			_, ear := poller(t, fast(), e.URL)
			ear.next(t, models)
			ear.next(t, observed)
			e.set("/v1/models", says(`{"data":[{"id":"new"}]}`))
			e.set("/metrics", says(again))
			if m := ear.next(t, models); !slices.Equal(m.models, []string{"new"}) {
				t.Errorf("models %v, want [new]", m.models)
			}
		})
	}
}

func TestUnreadableModelsKeepWhatWasKnown(t *testing.T) {
	e := healthy(t)
	p := fast()
	p.Refresh = p.Interval
	x, ear := poller(t, p, e.URL)
	ear.next(t, models)
	for _, bad := range []http.HandlerFunc{
		says("<html>"), says(`{"data":[]}`), says(`{"data":[{"id":7}]}`), says(strings.Repeat(" ", modelsBytes+1)), status(500), status(404),
	} {
		before := e.count("/v1/models")
		e.set("/v1/models", bad)
		for e.count("/v1/models") < before+2 {
			if m := ear.next(t, func(told) bool { return true }); m.models != nil {
				t.Fatalf("told models %v", m.models)
			}
		}
	}
	if s := statusOf(x); !slices.Equal(s.Models, []string{"a", "b"}) || s.Failures != 0 {
		t.Errorf("status %+v, want models as before and no failed poll", s)
	}
	e.set("/v1/models", says(`{"data":[{"id":"c"}]}`))
	ear.next(t, models)
}

func TestOneThatHangsDelaysNobody(t *testing.T) {
	hang := healthy(t)
	hang.set("/metrics", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	good := healthy(t)
	x, ear := poller(t, fast(), hang.URL)
	if err := x.Add(Target{Slot: 4, Name: "gpu4", URL: good.URL}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		ear.next(t, func(x told) bool { return x.slot == 4 && observed(x) })
	}
	x.Close() // must not wait for the timeout of 10 s: the test binary's own would not show it, the count does
	if s := x.Status(nil); len(s) != 0 {
		t.Errorf("%d targets after Close, want none", len(s))
	}
}

func TestNothingIsToldAfterRemove(t *testing.T) {
	e := healthy(t)
	x, ear := poller(t, fast(), e.URL)
	for range 20 {
		ear.next(t, observed)
		x.Remove(3)
		ear.mu.Lock()
		ear.list = nil
		ear.mu.Unlock()
		if err := x.Add(Target{Slot: 4, URL: e.URL}); err != nil {
			t.Fatal(err)
		}
		ear.next(t, func(x told) bool {
			if x.slot == 3 {
				t.Error("told of a slot after its removal")
			}
			return observed(x)
		})
		x.Remove(4)
		if err := x.Add(Target{Slot: 3, URL: e.URL}); err != nil {
			t.Fatal(err)
		}
	}
	x.Remove(99)
}

func TestAddRefuses(t *testing.T) {
	e := healthy(t)
	x, _ := poller(t, fast(), e.URL)
	for name, bad := range map[string]Target{
		"slot twice": {Slot: 3, URL: e.URL},
		"scheme":     {Slot: 5, URL: "ftp://h"},
		"no host":    {Slot: 5, URL: "http://"},
		"no url":     {Slot: 5},
		"bad url":    {Slot: 5, URL: "http://h:x"},
		"engine":     {Slot: 5, URL: e.URL, Engine: "tgi"},
		"interval":   {Slot: 5, URL: e.URL, Interval: -1},
	} {
		if err := x.Add(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := x.Add(Target{Slot: 3, URL: e.URL}); !errors.Is(err, ErrSlot) {
		t.Errorf("slot twice: %v, want ErrSlot", err)
	}
	x.Close()
	if err := x.Add(Target{Slot: 6, URL: e.URL}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

func TestParamsValidate(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Params){
		"interval": func(p *Params) { p.Interval = 0 },
		"timeout":  func(p *Params) { p.Timeout = -1 },
		"refresh":  func(p *Params) { p.Refresh = 0 },
		"body":     func(p *Params) { p.MaxBody = 0 },
	} {
		p := Default()
		change(&p)
		if _, err := New(p, newEar(), func() time.Duration { return 0 }); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want an error that names it", name, err)
		}
	}
}

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range append(Reasons(), ReasonNone) {
		if s := r.String(); s == "" || s == "unknown" || seen[s] {
			t.Errorf("reason %d is named %q", r, s)
		}
		seen[r.String()] = true
	}
	if Reason(200).String() != "unknown" {
		t.Error("a reason that does not exist has a name")
	}
}
