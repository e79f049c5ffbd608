package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/poll"
)

// busy is an engine with so many requests in its queue.
func busy(t *testing.T, waiting int, started float64, models ...string) string {
	t.Helper()
	return serving(t, fmt.Sprintf("vllm:num_requests_running 1\nvllm:num_requests_waiting %d\nprocess_start_time_seconds %f\n", waiting, started), models...)
}

// serving is an engine with this page of metrics. It echoes.
func serving(t *testing.T, page string, models ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			_, _ = io.WriteString(w, page)
		case "/v1/models":
			fmt.Fprintf(w, `{"data":[{"id":"%s"}]}`, strings.Join(models, `"},{"id":"`))
		default:
			_, _ = io.Copy(w, r.Body)
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// TestAGatewayIsTheSumOfItsEngines: what one site knows of another is not the queue,
// the models and the start of whichever engine a poll happens to reach.
func TestAGatewayIsTheSumOfItsEngines(t *testing.T) {
	siteB, _ := start(t, settings(t, map[string]any{"site": "b", "poll.window": "1m"}, busy(t, 0, 100, "x"), busy(t, 9, 200, "y")))
	siteA, _ := start(t, settings(t, map[string]any{
		"site": "a", "routing.policy": "always-sticky", "poll.window": "1m",
		"backends": []map[string]any{{"name": "gateway", "url": "http://" + siteB.Addr(), "site": "b"}},
	}))
	state := func() decide.BackendState { return siteA.fleet.Snapshot(siteA.now(), nil)[0] }
	testutil.Eventually(t, "site b is measured", func() bool {
		b := state()
		return b.Measured && b.Waiting == 9 && len(b.Spec.Models) == 2
	})
	if code, body := post(t, "http://"+siteA.Addr()+"/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":"`+strings.Repeat("word ", 2000)+`"}]}`); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	polls := func() uint64 { return siteA.pollStatus()[0].Polls }
	for from := polls(); polls() < from+20; time.Sleep(time.Millisecond) {
		b := state()
		if b.Queue != 5 || b.Waiting != 9 || b.Running != 2 {
			t.Fatalf("queue %d, %d waiting, %d running; want 5, 9, 2", b.Queue, b.Waiting, b.Running)
		}
		if b.IndexEntries == 0 {
			t.Fatal("the memory of the site was lost")
		}
		if fmt.Sprint(b.Spec.Models) != "[x y]" {
			t.Fatalf("models %q", b.Spec.Models)
		}
	}
	if s := siteA.Status().Backends[0]; s.Engine != poll.Tautline || s.PollErrors != 0 {
		t.Errorf("status %+v", s)
	}
	for _, b := range siteB.Status().Backends {
		if len(b.Picks) > 1 || b.Picks["lone"]+b.Picks["not_applicable"] > 1 {
			t.Errorf("site b routed polls: %v", b.Picks)
		}
	}
}

// TestAnAgentBehindAnAgent of the same site is recognized without being told, and
// makes the load of the front unknown rather than wrong.
func TestAnAgentBehindAnAgent(t *testing.T) {
	inner, _ := start(t, settings(t, nil, busy(t, 0, 100, "x"), busy(t, 9, 200, "x")))
	front, _ := start(t, settings(t, nil, "http://"+inner.Addr()))
	testutil.Eventually(t, "it is recognized", func() bool {
		b := front.fleet.Snapshot(front.now(), nil)[0]
		return front.Status().Backends[0].Engine == poll.Tautline && b.Measured && b.Waiting == 9
	})
	if l := front.load(); l.Measured || l.Engines != 1 || l.Waiting != 0 {
		t.Errorf("the front tells %+v", l)
	}
}

// TestLoadIsAskedOnTheClientListener: who may, and how.
func TestLoadIsAskedOnTheClientListener(t *testing.T) {
	a, _ := start(t, settings(t, nil, busy(t, 1, 100, "x")))
	url := "http://" + a.Addr() + poll.LoadPath
	testutil.Eventually(t, "it is measured", func() bool {
		code, body := get(t, url)
		var l poll.AgentLoad
		return code == 200 && json.Unmarshal([]byte(body), &l) == nil && l.Measured && l.Waiting == 1
	})
	resp, _ := ask(t, "POST", url, "{}")
	if resp.StatusCode != 405 || resp.Header.Get("Allow") == "" {
		t.Errorf("POST: %d", resp.StatusCode)
	}
	a.fleet.Drain(0, true)
	if code, body := get(t, url); code != 503 {
		t.Errorf("without an engine: %d %s", code, body)
	}

	closed, _ := start(t, settings(t, map[string]any{"allowed_paths": []string{"/v1/chat/completions"}}, busy(t, 1, 100, "x")))
	if code, body := get(t, "http://"+closed.Addr()+poll.LoadPath); code != 404 {
		t.Errorf("a path that is not allowed: %d %s", code, body)
	}
	open, _ := start(t, settings(t, map[string]any{"allowed_paths": []string{poll.LoadPath}}, busy(t, 1, 100, "x")))
	if code, body := get(t, "http://"+open.Addr()+poll.LoadPath); code != 200 {
		t.Errorf("a path that is allowed: %d %s", code, body)
	}
}

func TestSumLoad(t *testing.T) {
	e := func(slot, waiting int, kv float64, size int64) decide.BackendState {
		return decide.BackendState{
			Slot: slot, Spec: decide.Spec{Site: "s", Models: []string{"m"}}, Admitted: true, Measured: true,
			Waiting: waiting, Running: 1, KVUse: kv, HasKV: true, CapacityTok: size,
		}
	}
	with := func(b decide.BackendState, change func(*decide.BackendState)) decide.BackendState {
		change(&b)
		return b
	}
	half := 0.5
	one := poll.AgentLoad{Site: "s", Engines: 1, Measured: true, Waiting: 3, Running: 1, KVUse: &half, KVTokens: 100, Models: []string{"m"}}
	for _, c := range []struct {
		name string
		all  []decide.BackendState
		want poll.AgentLoad
	}{
		{"nobody", nil, poll.AgentLoad{Site: "s"}},
		{"one", []decide.BackendState{e(0, 3, .5, 100)}, one},
		{"large ones weigh more", []decide.BackendState{e(0, 3, .8, 100), e(1, 4, .4, 300)},
			poll.AgentLoad{Site: "s", Engines: 2, Measured: true, Waiting: 7, Running: 2, KVUse: &half, KVTokens: 400, Models: []string{"m"}}},
		{"sizes not known", []decide.BackendState{e(0, 3, .75, 0), e(1, 4, .25, 300)},
			poll.AgentLoad{Site: "s", Engines: 2, Measured: true, Waiting: 7, Running: 2, KVUse: &half, Models: []string{"m"}}},
		{"another site's gateway is left out", []decide.BackendState{e(0, 3, .5, 100), with(e(1, 9, 1, 900), func(b *decide.BackendState) { b.Spec.Site = "z" })}, one},
		{"one takes nothing, but serves", []decide.BackendState{e(0, 3, .5, 100), with(e(1, 9, 1, 900), func(b *decide.BackendState) { b.Admitted, b.Spec.Models = false, []string{"a"} })},
			poll.AgentLoad{Site: "s", Engines: 1, Measured: true, Waiting: 3, Running: 1, KVUse: &half, KVTokens: 100, Models: []string{"a", "m"}}},
		{"one is not measured", []decide.BackendState{e(0, 3, .5, 100), with(e(1, 0, .5, 100), func(b *decide.BackendState) { b.Measured = false })},
			poll.AgentLoad{Site: "s", Engines: 2, KVUse: &half, KVTokens: 200, Models: []string{"m"}}},
		{"one's memory is not known", []decide.BackendState{e(0, 3, .5, 100), with(e(1, 0, 0, 0), func(b *decide.BackendState) { b.HasKV = false })},
			poll.AgentLoad{Site: "s", Engines: 2, Measured: true, Waiting: 3, Running: 2, Models: []string{"m"}}},
		{"one may serve anything", []decide.BackendState{e(0, 3, .5, 100), with(e(1, 0, .5, 100), func(b *decide.BackendState) { b.Spec.Models = nil })},
			poll.AgentLoad{Site: "s", Engines: 2, Measured: true, Waiting: 3, Running: 2, KVUse: &half, KVTokens: 200}},
		{"one takes nothing and never said what it serves", []decide.BackendState{e(0, 3, .5, 100), with(e(1, 0, .5, 100), func(b *decide.BackendState) { b.Admitted, b.Spec.Models = false, nil })}, one},
		{"one is an agent", []decide.BackendState{e(0, 3, .5, 100), e(7, 1, .5, 100)},
			poll.AgentLoad{Site: "s", Engines: 2, Models: []string{"m"}}},
	} {
		if got := sumLoad("s", c.all, func(slot int) bool { return slot == 7 }); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
