package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/tools/modelserver"
)

// crowd sends n prompts of about 2,400 tokens each, all at once, to an agent before two
// engines that have memory for one and a half, and returns the longest queue that an
// engine had and how many the agent held at most.
func crowd(t *testing.T, hold string, n int) (a *Agent, queued, held int) {
	t.Helper()
	var engines []*modelserver.Server
	var urls []string
	for range 2 {
		e := engine(t, func(c *modelserver.Config) { c.CacheBlocks, c.PrefillRate = 240, 1e5 })
		engines, urls = append(engines, e), append(urls, e.URL())
	}
	a, _ = start(t, settings(t, map[string]any{"routing.policy": "priced-spread", "routing.hold": hold,
		"poll.interval": "5ms", "poll.window": "1m", // or memory would not be known when polls are late
	}, urls...))
	testutil.Eventually(t, "the engines' memory is known", func() bool {
		for _, b := range a.fleet.Snapshot(a.now(), nil) {
			if !b.HasKV || b.CapacityTok == 0 {
				return false
			}
		}
		return true
	})
	stop := make(chan struct{})
	var clients, watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			held = max(held, a.proxy.Held())
			for _, e := range engines {
				queued = max(queued, e.Stats().Waiting)
			}
		}
	})
	for i := range n {
		clients.Go(func() {
			body := fmt.Sprintf(`{"model":"stand-in","stream":true,"max_tokens":30,"messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat("word ", 1900))
			if code, text := post(t, "http://"+a.Addr()+"/v1/chat/completions", body); code != 200 || !strings.HasSuffix(text, "data: [DONE]\n\n") {
				t.Errorf("request %d: %d %.200s", i, code, text)
			}
		})
	}
	clients.Wait()
	close(stop)
	watch.Wait()
	return a, queued, held
}

// TestHoldingKeepsQueuesInTheAgent: what the engines have no memory for waits in the
// agent instead of in their queues, and all is answered.
func TestHoldingKeepsQueuesInTheAgent(t *testing.T) {
	const n = 16
	_, theirs, none := crowd(t, "0s", n)
	a, ours, held := crowd(t, "1m", n)
	t.Logf("waited in an engine at most %d, and %d with holding; held %d and %d", theirs, ours, none, held)
	// How many wait where depends on how fast clients, engines and polls are on this machine.
	if none != 0 || held == 0 {
		t.Errorf("%d were held without holding, %d with it", none, held)
	}
	testutil.Eventually(t, "the last request has been counted", func() bool { return a.proxy.Active() == 0 })
	_, page := get(t, "http://"+a.AdminAddr()+"/metrics")
	var room, waited int
	for line := range strings.Lines(page) {
		_, _ = fmt.Sscanf(line, `tautline_holds_total{reason="room"} %d`, &room)
		_, _ = fmt.Sscanf(line, `tautline_held_seconds_count %d`, &waited)
	}
	if room == 0 || waited != room || !strings.Contains(page, "tautline_held_requests 0\n") {
		t.Errorf("%d counted for room, %d for their time", room, waited)
	}
	if s := a.Status(); s.Hold == nil || s.Hold.LimitSeconds != 60 || s.Hold.Held != 0 || s.Hold.Waited.Count != uint64(room) {
		t.Errorf("status %+v", s.Hold)
	}
}

// TestHeldRequestsAreSeen: by those who ask the agent, another agent among them, and a
// reload that switches holding off lets them go.
func TestHeldRequestsAreSeen(t *testing.T) {
	var urls []string
	for range 2 {
		urls = append(urls, full(t))
	}
	on := map[string]any{"routing.policy": "priced-spread", "routing.hold": "1h"}
	a, _ := start(t, settings(t, on, urls...))
	testutil.Eventually(t, "the engines' memory is known", func() bool {
		for _, b := range a.fleet.Snapshot(a.now(), nil) {
			if !b.HasKV {
				return false
			}
		}
		return true
	})
	body := `{"model":"x","messages":[{"role":"user","content":"` + strings.Repeat("word ", 1000) + `"}]}`
	waiting := a.load().Waiting
	answered := later("http://"+a.Addr()+"/v1/chat/completions", body)
	testutil.Eventually(t, "the request is held", func() bool { return a.proxy.Held() == 1 })
	if s := a.Status(); s.Hold == nil || s.Hold.Held != 1 || s.Hold.LimitSeconds != 3600 || s.ActiveStreams != 1 {
		t.Errorf("status %+v", s.Hold)
	}
	if got := a.load().Waiting; got != waiting+1 {
		t.Errorf("another agent is told of %d that wait, want %d", got, waiting+1)
	}
	var e Explanation
	if _, text := post(t, "http://"+a.AdminAddr()+"/v1/explain?path=/v1/chat/completions", body); json.Unmarshal([]byte(text), &e) != nil ||
		!e.Held || e.Backend != "" || e.Reason != "no_room" {
		t.Errorf("explained as %+v", e)
	}
	if _, page := get(t, "http://"+a.AdminAddr()+"/metrics"); !strings.Contains(page, "tautline_held_requests 1\n") {
		t.Error("the metrics do not show it")
	}
	on["routing.hold"] = "0s"
	if err := a.Reload(settings(t, on, urls...)); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; !strings.Contains(got, "word word") {
		t.Errorf("answered %.100q", got)
	}
	if s := a.Status(); s.Hold != nil {
		t.Errorf("holding is off and nothing is held: %+v", s.Hold)
	}
	e = Explanation{}
	if _, text := post(t, "http://"+a.AdminAddr()+"/v1/explain?path=/v1/chat/completions", body); json.Unmarshal([]byte(text), &e) != nil || e.Held || e.Backend == "" {
		t.Errorf("explained as %+v", e)
	}
}

// TestHeldRequestsSurviveAReloadOfAllBackends: who is held is answered as well.
func TestHeldRequestsSurviveAReloadOfAllBackends(t *testing.T) {
	on := map[string]any{"routing.policy": "priced-spread", "routing.hold": "1h"}
	a, _ := startLogging(t, settings(t, on, full(t), full(t)), slog.New(slowly{slog.DiscardHandler}))
	testutil.Eventually(t, "the engines' memory is known", func() bool {
		for _, b := range a.fleet.Snapshot(a.now(), nil) {
			if !b.HasKV {
				return false
			}
		}
		return true
	})
	answered := later("http://"+a.Addr()+"/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":"`+strings.Repeat("word ", 1000)+`"}]}`)
	testutil.Eventually(t, "the request is held", func() bool { return a.proxy.Held() == 1 })
	if err := a.Reload(settings(t, on, full(t), full(t))); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; !strings.Contains(got, "word word") {
		t.Errorf("answered %.200q", got)
	}
}

// full is an engine without KV memory left, which answers all the same.
func full(t *testing.T) string {
	t.Helper()
	return serving(t, "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 1\n"+
		`vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1`+"\n", "x")
}
