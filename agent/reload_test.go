package agent

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// gated is a backend whose streamed answer waits for open to be closed; asked
// gets a value for each request that has come.
func gated(t *testing.T) (url string, asked chan struct{}, open chan struct{}) {
	t.Helper()
	asked, open = make(chan struct{}, 8), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		select {
		case <-open:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL, asked, open
}

func TestARequestThatOutlivesItsBackendBringsNoSeriesBack(t *testing.T) {
	url, asked, open := gated(t)
	a, _ := start(t, settings(t, nil, url))
	answered := make(chan string, 1)
	go func() {
		resp, err := http.Post("http://"+a.Addr()+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		answered <- string(raw)
	}()
	<-asked
	if err := a.Reload(settings(t, nil)); err != nil {
		t.Fatal(err)
	}
	// What a status that was begun before the reload asks at its end.
	if q := a.recorder.TTFT("gpu0"); q != nil {
		t.Errorf("quantiles of a removed backend: %+v", q)
	}
	close(open)
	if body := <-answered; !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the request under way got %q, want its whole answer", body)
	}
	var page string
	eventually(t, "the request has been counted", func() bool {
		_, page = get(t, "http://"+a.AdminAddr()+"/metrics")
		return strings.Contains(page, `tautline_requests_total{backend="(removed)",code="200"} 1`)
	})
	for line := range strings.Lines(page) {
		if strings.Contains(line, `backend="gpu0"`) {
			t.Errorf("a removed backend has the series %s", line)
		}
	}
}

func TestABackendThatComesBackCountsFromZero(t *testing.T) {
	url, _, open := gated(t)
	close(open)
	a, _ := start(t, settings(t, nil, url))
	ask := func() {
		if code, text := post(t, "http://"+a.Addr()+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[]}`); code != 200 {
			t.Fatalf("%d: %s", code, text)
		}
	}
	ask()
	for _, urls := range [][]string{{}, {url}} {
		if err := a.Reload(settings(t, nil, urls...)); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	var page string
	eventually(t, "the request has been counted", func() bool {
		_, page = get(t, "http://"+a.AdminAddr()+"/metrics")
		return strings.Contains(page, `tautline_requests_total{backend="gpu0",code="200"} `)
	})
	if !strings.Contains(page, `tautline_requests_total{backend="gpu0",code="200"} 1`+"\n") {
		t.Error("the counts of a former backend of that name came back")
	}
}
