package poll

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/load"
)

// TestMain fails when the tests leave goroutines of this package or of its
// connections behind.
func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		serveEngine()
		return
	}
	os.Exit(testutil.Run(m, "/poll.", "net/http."))
}

// told is what a sink heard.
type told struct {
	slot   int
	sample load.Sample
	failed bool
	dead   bool // nobody is there
	hung   bool // somebody hung up
	models []string
	at     time.Duration
}

// ear is a Sink that keeps what it hears.
type ear struct {
	mu   sync.Mutex
	list []told
	more chan struct{}
}

func newEar() *ear { return &ear{more: make(chan struct{}, 1)} }

func (e *ear) hear(x told) {
	e.mu.Lock()
	e.list = append(e.list, x)
	e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

func (e *ear) Observe(slot int, s load.Sample, now time.Duration) {
	e.hear(told{slot: slot, sample: s, at: now})
}

func (e *ear) Unreachable(slot int, now time.Duration) {
	e.hear(told{slot: slot, dead: true, at: now})
}

func (e *ear) ConnectFailed(slot int, now time.Duration) {
	e.hear(told{slot: slot, hung: true, at: now})
}

func (e *ear) PollFailed(slot int, now time.Duration) {
	e.hear(told{slot: slot, failed: true, at: now})
}
func (e *ear) SetModels(slot int, m []string) { e.hear(told{slot: slot, models: m}) }

// next waits for something that fits, and forgets all up to it.
func (e *ear) next(t *testing.T, fits func(told) bool) told {
	t.Helper()
	for {
		e.mu.Lock()
		for i, x := range e.list {
			if fits(x) {
				e.list = e.list[i+1:]
				e.mu.Unlock()
				return x
			}
		}
		e.list = nil
		e.mu.Unlock()
		<-e.more
	}
}

func observed(x told) bool { return !x.failed && !x.dead && !x.hung && x.models == nil }
func failed(x told) bool   { return x.failed }
func models(x told) bool   { return x.models != nil }

func fast() Params {
	p := Default()
	p.Interval = 5 * time.Millisecond
	p.Timeout = 10 * time.Second
	p.Refresh = time.Hour
	return p
}

// poller polls url under slot 3 and closes with the test.
func poller(t *testing.T, p Params, url string, change ...func(*Target)) (*Poller, *ear) {
	t.Helper()
	e := newEar()
	var tick atomic.Int64
	x, err := New(p, e, func() time.Duration { return time.Duration(tick.Add(1)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	target := Target{Slot: 3, Name: "gpu3", URL: url}
	for _, f := range change {
		f(&target)
	}
	if err := x.Add(target); err != nil {
		t.Fatal(err)
	}
	return x, e
}

// engine is a backend whose answers a test can change.
type engine struct {
	*httptest.Server
	mu    sync.Mutex
	paths map[string]http.HandlerFunc
	asked map[string]int
	conns atomic.Int64
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	e := &engine{paths: make(map[string]http.HandlerFunc), asked: make(map[string]int)}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		h := e.paths[r.URL.Path]
		e.asked[r.URL.Path]++
		e.mu.Unlock()
		if h == nil {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	e.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			e.conns.Add(1)
		}
	}
	e.Start()
	t.Cleanup(e.Close)
	return e
}

func (e *engine) set(path string, h http.HandlerFunc) {
	e.mu.Lock()
	e.paths[path] = h
	e.mu.Unlock()
}

func (e *engine) count(path string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked[path]
}

func says(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

const (
	page    = "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\nprocess_start_time_seconds 100\n"
	listing = `{"object":"list","data":[{"id":"b"},{"id":"a"},{"id":"b"}]}`
)

func healthy(t *testing.T) *engine {
	e := newEngine(t)
	e.set("/metrics", says(page))
	e.set("/v1/models", says(listing))
	e.set("/health", status(200))
	return e
}

func statusOf(p *Poller) Status { return p.Status(nil)[0] }
