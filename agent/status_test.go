package agent

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/agent/telemetry"
	"github.com/tautline/tautline/test/testutil"
)

func TestAPollErrorIsOverWhenPollsWorkAgain(t *testing.T) {
	var broken atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		switch r.URL.Path {
		case "/metrics":
			_, _ = w.Write([]byte("vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"))
		case "/v1/models":
			_, _ = w.Write([]byte(`{"data":[{"id":"m"}]}`))
		}
	}))
	t.Cleanup(s.Close)
	began := time.Now()
	a, _ := start(t, settings(t, nil, s.URL))
	row := func() telemetry.BackendStatus { return a.Status().Backends[0] }
	testutil.Eventually(t, "the backend is measured", func() bool { return row().Measured })
	if b := row(); b.PollError != "" || b.LastPollError != nil {
		t.Errorf("an error before there was one: %+v", b)
	}
	broken.Store(true)
	testutil.Eventually(t, "the status has the error of the last poll", func() bool { return strings.Contains(row().PollError, "500") })
	broken.Store(false)
	testutil.Eventually(t, "the error is over", func() bool { return row().PollError == "" })
	if last := row().LastPollError; last == nil || !strings.Contains(last.Error, "500") || last.At.Before(began) || last.At.After(time.Now()) {
		t.Errorf("last error %+v, want the 500 and when it was", last)
	}
}
