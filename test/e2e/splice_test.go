package e2e

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestEveryResponseOfAKeptConnectionIsSpliced: both sides keep their connection,
// and the second response on it splices like the first.
func TestEveryResponseOfAKeptConnectionIsSpliced(t *testing.T) {
	r := newRig(t, "auto", nil)
	if s := r.agent.Status().Splice; s.State != "on" {
		t.Skipf("the kernel cannot splice here: %s", s.Reason)
	}
	const n, body = 6, `{"model":"stand-in","stream":true,"max_tokens":200,"min_tokens":200,"messages":[{"role":"user","content":"%"}]}`
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range n {
		// A short body and one that is written from its own buffer behind the head.
		text := strings.Replace(body, "%", strings.Repeat("x", i*20000), 1)
		resp, err := client.Post("http://"+r.agent.Addr()+"/v1/chat/completions", "application/json", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.HasSuffix(bytes.TrimSpace(raw), []byte("data: [DONE]")) {
			t.Fatalf("response %d: %v, ends with %q", i, err, raw[max(0, len(raw)-40):])
		}
		time.Sleep(time.Millisecond)
	}
	s := settled(t, r.agent).Splice
	if s.Outcomes["ended/spliced"] != n {
		t.Errorf("responses ended %v, want %d spliced", s.Outcomes, n)
	}
	if s.Chunks < n*200/4 {
		t.Errorf("%d chunks were spliced, want many of %d", s.Chunks, n*200)
	}
}

// TestChunkGaps: what the kernel measures between two messages reaches operators, in the
// status and in the metrics, at the backend that sent them.
func TestChunkGaps(t *testing.T) {
	r := newRig(t, "auto", nil)
	if s := r.agent.Status().Splice; s.State != "on" {
		t.Skipf("the kernel cannot splice here: %s", s.Reason)
	}
	const body = `{"model":"stand-in","stream":true,"max_tokens":300,"min_tokens":300,"messages":[{"role":"user","content":"x"}]}`
	resp, err := http.Post("http://"+r.agent.Addr()+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	status := settled(t, r.agent)
	resp, err = http.Get("http://" + r.agent.AdminAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	took := 0
	for _, b := range status.Backends {
		n := 0
		if m := regexp.MustCompile(`(?m)^tautline_chunk_gap_seconds_count\{backend="` + regexp.QuoteMeta(b.Name) + `"\} (\d+)$`).FindSubmatch(page); m != nil {
			n, _ = strconv.Atoi(string(m[1]))
		}
		if b.SplicedChunks == 0 {
			if b.ChunkGap != nil || n != 0 {
				t.Errorf("%s sent nothing, and has gaps: %+v, %d in the metrics", b.Name, b.ChunkGap, n)
			}
			continue
		}
		took++
		g := b.ChunkGap
		if g == nil || g.Count < 200 || g.Count >= b.SplicedChunks+1 || int(g.Count) != n {
			t.Fatalf("%s: %d chunks, gaps %+v, %d in the metrics", b.Name, b.SplicedChunks, g, n)
		}
		// The stand-in sends a token every 2 ms; the kernel counts in powers of two.
		if g.P50 < 0.0005 || g.P50 > g.P90 || g.P90 > g.P99 {
			t.Errorf("%s: gaps %+v", b.Name, g)
		}
	}
	if took != 1 {
		t.Errorf("%d backends have sent chunks, want one", took)
	}
}

// TestASplicedStreamIsNotIdle: timeouts.idle looks at what reaches the client,
// not at what passes through the agent.
func TestASplicedStreamIsNotIdle(t *testing.T) {
	r := newRig(t, "auto", map[string]any{"timeouts.idle": "200ms"})
	if s := r.agent.Status().Splice; s.State != "on" {
		t.Skipf("the kernel cannot splice here: %s", s.Reason)
	}
	const body = `{"model":"stand-in","stream":true,"max_tokens":400,"min_tokens":400,"messages":[{"role":"user","content":"x"}]}`
	resp, err := http.Post("http://"+r.agent.Addr()+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.HasSuffix(bytes.TrimSpace(raw), []byte("data: [DONE]")) {
		t.Fatalf("%v, ends with %q", err, raw[max(0, len(raw)-40):])
	}
	if s := settled(t, r.agent).Splice; s.Chunks < 300 {
		t.Errorf("%d chunks were spliced: the test shows nothing", s.Chunks)
	}
}

// TestResponsesStreamsAreSpliced: the ids in a stream of the Responses API are
// tagged, and the kernel carries its deltas all the same.
func TestResponsesStreamsAreSpliced(t *testing.T) {
	f, c := newFleet(t), startSDK(t)
	a, _ := f.start(t, object{"splice.mode": "auto", "splice.pin_path": "", "prefix_affinity.tag_key_path": keyFile(t, "k")})
	if s := a.Status().Splice; s.State != "on" {
		t.Skipf("the kernel cannot splice here: %s", s.Reason)
	}
	c.base = "http://" + a.Addr()
	const n, tokens = 6, 100
	first := field(c.ok("responses.create", create(nil)), "id")
	deltas := 0
	for i := range n {
		body := create(object{"stream": true, "max_output_tokens": tokens, "min_tokens": tokens, "previous_response_id": first})
		if i%2 == 1 {
			body["metadata"] = object{"id": "resp_mine"}
		}
		id := ""
		for k, e := range c.events("responses.create", body) {
			if e["sequence_number"] != float64(k) {
				t.Fatalf("event %d has number %v", k, e["sequence_number"])
			}
			if kind := field(e, "type"); strings.HasSuffix(kind, ".delta") {
				deltas++
			}
			if e["response"] == nil {
				continue
			}
			if id == "" {
				id = field(e, "response", "id")
				untagged(t, id)
			}
			if field(e, "response", "id") != id || field(e, "response", "previous_response_id") != first {
				t.Errorf("%s: id %q, previous %q", e["type"], field(e, "response", "id"), field(e, "response", "previous_response_id"))
			}
		}
		f.holder(t, "responses", id)
	}
	if deltas < n*tokens/2 {
		t.Fatalf("%d deltas: the test shows nothing", deltas)
	}
	s := settled(t, a).Splice
	t.Logf("%d of %d deltas were spliced", s.Chunks, deltas)
	if s.Outcomes["ended/spliced"] != n || s.Outcomes["ended/rewritten"] != 1 {
		t.Errorf("responses ended %v, want %d spliced and the one that is no stream rewritten", s.Outcomes, n)
	}
	if s.Chunks < uint64(deltas)/2 || s.Chunks > uint64(deltas) {
		t.Errorf("%d chunks were spliced, want most of %d deltas", s.Chunks, deltas)
	}
}
