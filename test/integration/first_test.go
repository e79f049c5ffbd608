package integration

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestSplicedStreamIsAccounted: a first token that passes in the kernel wakes nobody, and
// ends the prefill in the accounts all the same: for whoever looks, the reservation is
// released and the time to the first token taken while the stream goes on. The usage
// that the client asked for is read as well.
func TestSplicedStreamIsAccounted(t *testing.T) {
	pins := bpffs(t) + "/tautline"
	e := startWaiting(t, pins, true)
	e.first = make(chan struct{})
	a := startAgent(t, pins, []string{e.ln.Addr().String()}, nil, "poll: {interval: 1h, window: 1h}")
	resp := e.post(t, a.addr, askUsage)
	defer resp.Body.Close()
	if b := a.status().Backends[0]; b.Inflight != 1 || b.UncachedTokens == 0 {
		t.Errorf("before the first token %d requests and %d tokens are in flight", b.Inflight, b.UncachedTokens)
	}
	if n := a.metric("tautline_ttft_seconds_count"); n != "" && n != "0" {
		t.Errorf("before the first token %s were taken", n)
	}
	e.head <- struct{}{}
	if _, err := io.ReadFull(resp.Body, make([]byte, len(e.token(0)))); err != nil {
		t.Fatal(err)
	}
	if b := a.status().Backends[0]; b.Inflight != 1 || b.UncachedTokens != 0 {
		t.Errorf("after the first token %d requests and %d tokens are in flight", b.Inflight, b.UncachedTokens)
	}
	if n := a.metric("tautline_ttft_seconds_count"); n != "1" {
		t.Errorf("after the first token %q were taken", n)
	}
	close(e.first)
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != e.text[len(e.token(0)):] {
		t.Errorf("%d bytes behind the first token, %v", len(body), err)
	}
	if st := a.idle(); st.Splice.Outcomes["ended/spliced"] != 1 {
		t.Errorf("the response was not spliced: %v", st.Splice.Outcomes)
	}
	if n := a.metric("tautline_reported_prompt_tokens_total"); n != "7" {
		t.Errorf("the engine is held to have reported %q prompt tokens, want 7", n)
	}
	if n := a.metric("tautline_ttft_seconds_count"); n != "1" {
		t.Errorf("in the end %q were taken", n)
	}
	http.DefaultClient.CloseIdleConnections()
	a.end()
}

// metric returns the value of the first series of that name, empty where there is none.
func (a *agent) metric(name string) string {
	a.t.Helper()
	resp, err := http.Get(a.admin + "/metrics")
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(series, name+"{") {
			return value
		}
	}
	return ""
}
