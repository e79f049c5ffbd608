package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/tools/modelserver"
)

func engine(t *testing.T, change func(*modelserver.Config)) *modelserver.Server {
	t.Helper()
	c := modelserver.Default()
	c.PrefillRate, c.TokenDelay = 1e6, 2*time.Millisecond
	if change != nil {
		change(&c)
	}
	s, err := modelserver.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// settings are those of a test's agent, over which its own are laid.
func settings(t *testing.T, over map[string]any, urls ...string) *config.Config {
	t.Helper()
	var backends []map[string]any
	for i, u := range urls {
		backends = append(backends, map[string]any{"name": fmt.Sprintf("gpu%d", i), "url": u})
	}
	all := map[string]any{
		"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "backends": backends, "splice.mode": "off",
		"poll.interval": "20ms", "poll.window": "200ms", "drain_timeout": "5s",
	}
	for k, v := range over {
		all[k] = v
	}
	cfg, err := config.Load("", all)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// start runs an agent; stop drains it and returns what Run did.
func start(t *testing.T, cfg *config.Config) (a *Agent, stop func() error) {
	t.Helper()
	return startLogging(t, cfg, slog.New(slog.DiscardHandler))
}

// startLogging is start with a log.
func startLogging(t *testing.T, cfg *config.Config, log *slog.Logger) (a *Agent, stop func() error) {
	t.Helper()
	a, err := New(t.Context(), cfg, Options{Version: "test", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("agent: %v", err)
		}
	})
	return a, stop
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	return answer(t, resp, err)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	return answer(t, resp, err)
}

// answer reads a whole answer.
func answer(t *testing.T, resp *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

const chat = `{"model":"stand-in","max_tokens":4,"messages":[{"role":"system","content":"%s"},{"role":"user","content":"hi"}]}`

func TestMetricsAreNamedWellAndCountRequests(t *testing.T) {
	never := map[string]any{"prefix_affinity.exploration": 0}
	a, _ := start(t, settings(t, never, engine(t, nil).URL(), engine(t, nil).URL()))
	body := fmt.Sprintf(chat, strings.Repeat("prefix ", 400))
	for range 3 {
		if code, text := post(t, "http://"+a.Addr()+"/v1/chat/completions", body); code != 200 {
			t.Fatalf("%d: %s", code, text)
		}
	}
	problems, err := promtest.GatherAndLint(a.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	testutil.Eventually(t, "the last request has been counted", func() bool { return a.proxy.Active() == 0 })
	_, page := get(t, "http://"+a.AdminAddr()+"/metrics")
	for _, want := range []string{
		`grid_route_prefix_affinity_total{outcome="no_match"} 1`,
		`grid_route_prefix_affinity_total{outcome="load_override"} 0`,
		`tautline_splice_on{reason="off by configuration"} 0`,
		`tautline_retries_total{reason="connect"} 0`,
		`tautline_aborts_total{side="client"} 0`,
		`tautline_held_requests 0`,
		`tautline_held_seconds_count 0`,
		`tautline_holds_total{reason="limit"} 0`,
		`tautline_backend_admitted{backend="gpu0"} 1`,
		`tautline_inflight_requests{backend="gpu1"} 0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	total := 0
	for _, b := range []string{"gpu0", "gpu1"} {
		_, after, found := strings.Cut(page, fmt.Sprintf(`tautline_requests_total{backend=%q,code="200"} `, b))
		if n := 0; found {
			if _, err := fmt.Sscan(after, &n); err != nil {
				t.Fatal(err)
			}
			total += n
		}
	}
	if total != 3 {
		t.Errorf("%d requests counted, want 3", total)
	}
}

func TestStatusAndExplain(t *testing.T) {
	a, _ := start(t, settings(t, nil, engine(t, nil).URL(), engine(t, nil).URL()))
	body := fmt.Sprintf(chat, strings.Repeat("prefix ", 400))
	admin := "http://" + a.AdminAddr()
	explain := func() (e Explanation) {
		_, text := post(t, admin+"/v1/explain?path=/v1/chat/completions", body)
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return e
	}
	before := explain()
	if before.Outcome != "no_match" && before.Outcome != "exploration" || len(before.Keys) == 0 || len(before.Candidates) != 2 {
		t.Errorf("before: %+v", before)
	}
	post(t, "http://"+a.Addr()+"/v1/chat/completions", body)
	testutil.Eventually(t, "a backend holds the prompt", func() bool {
		e := explain()
		for _, c := range e.Candidates {
			if c.Run == len(e.Keys) && c.Sticky {
				return true
			}
		}
		return false
	})
	var picks uint64
	for _, b := range a.Status().Backends {
		for _, n := range b.Picks {
			picks += n
		}
	}
	if picks != 1 {
		t.Errorf("%d picks, want the one request: explaining must not count", picks)
	}
	if code, text := post(t, admin+"/v1/explain", "not json"); code != 200 || !strings.Contains(text, "invalid") {
		t.Errorf("explaining garbage: %d %s", code, text)
	}
}

func TestReadiness(t *testing.T) {
	a, stop := start(t, settings(t, nil, engine(t, nil).URL()))
	if code, _ := get(t, "http://"+a.AdminAddr()+"/readyz"); code != 200 {
		t.Errorf("with a backend: %d, want 200", code)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if ok, why := a.Ready(); ok || why != "draining" {
		t.Errorf("after the end: ready %t, %q", ok, why)
	}
	none, _ := start(t, settings(t, nil))
	if code, text := get(t, "http://"+none.AdminAddr()+"/readyz"); code != 503 || !strings.Contains(text, "no backend") {
		t.Errorf("without backends: %d %q, want 503", code, text)
	}
	if code, _ := post(t, "http://"+none.Addr()+"/v1/chat/completions", fmt.Sprintf(chat, "x")); code != 503 {
		t.Errorf("a request without backends: %d, want 503", code)
	}
}

func TestADeadBackendIsNotReadyWithoutARequest(t *testing.T) {
	e := engine(t, nil)
	a, _ := start(t, settings(t, nil, e.URL()))
	e.Close()
	testutil.Eventually(t, "a dead backend is not admitted", func() bool {
		code, _ := get(t, "http://"+a.AdminAddr()+"/readyz")
		return code == 503
	})
}

func TestReload(t *testing.T) {
	e0, e1 := engine(t, nil), engine(t, nil)
	a, _ := start(t, settings(t, nil, e0.URL()))
	if err := a.Reload(settings(t, map[string]any{"routing.policy": "priced"}, e0.URL(), e1.URL())); err != nil {
		t.Fatal(err)
	}
	s := a.Status()
	if len(s.Backends) != 2 || s.Policy != "priced" {
		t.Errorf("after adding: %d backends, policy %s", len(s.Backends), s.Policy)
	}
	if err := a.Reload(settings(t, nil, e1.URL())); err != nil { // gpu0 is another server now
		t.Fatal(err)
	}
	if s := a.Status(); len(s.Backends) != 1 || s.Backends[0].URL != e1.URL() {
		t.Errorf("after replacing: %+v", s.Backends)
	}
	if code, text := post(t, "http://"+a.Addr()+"/v1/chat/completions", fmt.Sprintf(chat, "x")); code != 200 {
		t.Errorf("request after reloads: %d %s", code, text)
	}
	err := a.Reload(settings(t, map[string]any{"site": "elsewhere"}, e0.URL()))
	if err == nil || !strings.Contains(err.Error(), "site") {
		t.Errorf("changing the site: %v, want an error that names it", err)
	}
	if s := a.Status(); len(s.Backends) != 1 || s.Backends[0].URL != e1.URL() {
		t.Errorf("a refused reload changed the backends: %+v", s.Backends)
	}
}

func TestReloadKeepsTheMemoryOfABackendThatDidNotChange(t *testing.T) {
	e := engine(t, nil)
	a, _ := start(t, settings(t, nil, e.URL(), engine(t, nil).URL()))
	post(t, "http://"+a.Addr()+"/v1/chat/completions", fmt.Sprintf(chat, strings.Repeat("prefix ", 400)))
	entries := func() (n int) {
		for _, b := range a.Status().Backends {
			n += b.IndexEntries
		}
		return n
	}
	before := entries()
	if before == 0 {
		t.Fatal("nothing was remembered")
	}
	if err := a.Reload(settings(t, map[string]any{"prefix_affinity.threshold": 0.5}, e.URL(), a.Status().Backends[1].URL)); err != nil {
		t.Fatal(err)
	}
	if after := entries(); after != before {
		t.Errorf("%d entries after the reload, %d before", after, before)
	}
}

func TestDrainFinishesStreams(t *testing.T) {
	e := engine(t, func(c *modelserver.Config) { c.TokenDelay = 20 * time.Millisecond })
	a, stop := start(t, settings(t, nil, e.URL()))
	resp, err := http.Post("http://"+a.Addr()+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"stand-in","stream":true,"max_tokens":30,"min_tokens":30,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(strings.TrimSpace(string(raw)), "data: [DONE]") {
		t.Errorf("the stream was cut off by the drain: %v, ...%.80s", err, raw[max(0, len(raw)-80):])
	}
	if err := <-stopped; err != nil {
		t.Errorf("drain: %v", err)
	}
}

func TestBadSettingsKeepAnAgentFromStarting(t *testing.T) {
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, make([]byte, 31), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, over := range map[string]map[string]any{
		"prefix_affinity.tag_key_path":  {"prefix_affinity.tag_key_path": short},
		"prefix_affinity.hash_key_path": {"prefix_affinity.hash_key_path": short},
		"tls":                           {"tls.cert_file": short, "tls.key_file": short},
		"listen":                        {"listen": "256.0.0.1:1"},
		"admin":                         {"admin": "256.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(t.Context(), settings(t, over), Options{Log: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(name, "prefix_affinity.")) {
				t.Errorf("got %v, want an error that names %s", err, name)
			}
		})
	}
}
