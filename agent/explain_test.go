package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tautline/tautline/test/testutil"
)

// TestExplainWithoutAQueueToCompare: what is not known has no price, and JSON no
// infinity.
func TestExplainWithoutAQueueToCompare(t *testing.T) {
	mute := httptest.NewServer(http.NotFoundHandler())
	defer mute.Close()
	cfg := settings(t, map[string]any{"routing.policy": "queue-priced", "poll.window": "1m"}, busy(t, 3, 100, "x"), mute.URL, mute.URL)
	a, err := New(t.Context(), cfg, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	testutil.Eventually(t, "one is measured", func() bool {
		for _, b := range a.fleet.Snapshot(a.now(), nil) {
			if b.Measured {
				return true
			}
		}
		return false
	})
	a.fleet.Drain(2, true)
	raw, err := json.Marshal(a.Explain("/v1/chat/completions", []byte(`{"messages":[]}`)))
	if err != nil {
		t.Fatal(err)
	}
	var e Explanation
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	for i, known := range []bool{true, false, false} {
		c := e.Candidates[i]
		if (c.Cost != nil) != known || known && *c.Cost != 3 {
			t.Errorf("candidate %+v", c)
		}
	}
}

// TestExplainKnowsStoredIds: a body that names one goes where it was made, or nowhere.
func TestExplainKnowsStoredIds(t *testing.T) {
	e, other := newStore(t, nil), newStore(t, nil)
	a, _ := start(t, settings(t, map[string]any{"prefix_affinity.tag_key_path": tagKey(t)}, e.url, other.url))
	resp, made := ask(t, "POST", "http://"+a.Addr()+"/v1/responses", makeOne)
	if resp.StatusCode != 200 {
		t.Fatal(made)
	}
	id := idOf(t, made)
	maker := "gpu0"
	if len(other.seen()) == 1 {
		maker = "gpu1"
	}
	explained := func(path, id string) Explanation {
		return a.Explain(path, []byte(`{"model":"stand-in","input":"on","previous_response_id":"`+id+`"}`)).(Explanation)
	}
	counted := fmt.Sprint(a.Status().PinVerdicts)
	for range 8 {
		if x := explained("/v1/responses", id); x.Backend != maker || x.Outcome != "pinned" {
			t.Fatalf("goes to %q, %s; want %s, pinned", x.Backend, x.Outcome, maker)
		}
	}
	forged := strings.SplitN(id, ".", 4)
	forged[2] = strings.Repeat("0", len(forged[2]))
	if x := explained("/v1/responses", strings.Join(forged, ".")); x.Backend != "" || x.Outcome != "none" || x.Reason != "pin_unknown" {
		t.Errorf("a forged id: %+v", x)
	}
	if x := explained("/v1/chat/completions", id); x.Backend == "" || x.Outcome == "pinned" {
		t.Errorf("an API without stored ids: %+v", x)
	}
	if got := fmt.Sprint(a.Status().PinVerdicts); got != counted {
		t.Errorf("explaining counted: %s, before %s", got, counted)
	}
}
