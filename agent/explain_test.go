package agent

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tautline/tautline/test/testutil"
)

// TestExplainWithoutAQueueToCompare: what is not known has no price, and JSON no
// infinity.
func TestExplainWithoutAQueueToCompare(t *testing.T) {
	mute := httptest.NewServer(http.NotFoundHandler())
	defer mute.Close()
	cfg := settings(t, map[string]any{"routing.policy": "queue-priced"}, busy(t, 3, 100, "x"), mute.URL, mute.URL)
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
