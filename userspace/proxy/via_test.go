package proxy

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func TestThrough(t *testing.T) {
	p := &Proxy{pseudonym: "here.0123456789abcdef"}
	for _, tc := range []struct {
		name  string
		via   []string
		loop  bool
		sites string
	}{
		{"nothing", nil, false, ""},
		{"others' proxies", []string{"1.0 fred, 1.1 p.example.net", "HTTP/1.1 nginx:80 (a, b)"}, false, ""},
		{"another agent", []string{"1.1 there.fedcba9876543210"}, false, "there"},
		{"two, on two lines", []string{"1.1 a.fedcba9876543210, 1.1 nginx", "1.1 b.fedcba9876543210"}, false, "a b"},
		{"a replica of this site", []string{"1.1 here.fedcba9876543210"}, false, "here"},
		{"this one", []string{"1.1 there.fedcba9876543210,1.1 here.0123456789abcdef"}, true, "there"},
		{"a head full of them", []string{strings.Repeat("1.1 a.fedcba9876543210,", 1000) + "1.1 here.0123456789abcdef"}, true, strings.TrimSpace(strings.Repeat("a ", 32))},
		{"torn", []string{"1.1", "", ",", "1.1 .", "1.1 here."}, false, ""},
	} {
		loop, sites := p.through(http.Header{"Via": tc.via})
		if loop != tc.loop || strings.Join(sites, " ") != tc.sites {
			t.Errorf("%s: loop %t, sites %v", tc.name, loop, sites)
		}
	}
}

func TestViaNamesEachAgent(t *testing.T) {
	g := newRig(t)
	var got []string
	g.add("a", func(w http.ResponseWriter, r *http.Request) { got = r.Header["Via"]; echo(w, r) })
	g.post("/", "{}", "Via", "1.0 outer")
	if want := []string{"1.0 outer, 1.1 " + g.proxy.pseudonym}; !slices.Equal(got, want) {
		t.Errorf("via %q, want %q", got, want)
	}
	if !strings.HasPrefix(g.proxy.pseudonym, "local.") {
		t.Errorf("pseudonym %q", g.proxy.pseudonym)
	}
}

// TestTwoAgentsThatNameEachOther do not pass a request round for ever: it ends
// with 508 where there is nothing else, and at the engine where there is one.
func TestTwoAgentsThatNameEachOther(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/embeddings"} {
		g, h := newRig(t), newRig(t)
		g.addURL("h", "http://"+h.addr)
		h.addURL("g", "http://"+g.addr)
		resp, body := g.post(path, chat("x"))
		if resp.StatusCode != http.StatusLoopDetected || !strings.Contains(body, "loop_detected") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
		g.last(2) // both visits have ended, in any order
		if n := slices.IndexFunc(g.ledger.ended(), func(s Summary) bool { return s.Refusal == RefusalLoop }); n < 0 {
			t.Errorf("%s: recorded %+v", path, g.ledger.ended())
		}
		g.idle()
		h.idle()
	}
	g, h := newRig(t), newRig(t)
	g.addURL("h", "http://"+h.addr)
	h.addURL("g", "http://"+g.addr)
	h.add("engine", echo)
	for n := range 20 { // h's first choice may be either
		if resp, _ := g.post("/v1/chat/completions", chat(strings.Repeat("y", n*300))); resp.StatusCode != 200 {
			t.Errorf("%d, although an engine is there", resp.StatusCode)
		}
	}
}

// TestARequestIsNotSentBackToTheSiteThatItCameFrom, whichever replica that is. One
// that a stored id pins goes where it must, and agents that share a site's name,
// as all do that were given none, are no reason.
func TestARequestIsNotSentBackToTheSiteThatItCameFrom(t *testing.T) {
	m := &marker{answer: PinAnswer{Slot: -1}}
	g := newRig(t, func(o *Options) { o.Pinner = m })
	var back, here atomic.Int64
	count := func(n *atomic.Int64) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { n.Add(1); echo(w, r) }
	}
	g.add("engine", count(&here))
	slot := g.add("gateway", count(&back))
	g.proxy.backend(slot).site = "there"
	const via = "1.1 there.fedcba9876543210"
	for n := range 20 {
		g.post("/v1/embeddings", chat(strings.Repeat("y", n)), "Via", via)
	}
	if back.Load() != 0 || here.Load() != 20 {
		t.Errorf("%d went back, %d stayed", back.Load(), here.Load())
	}
	for range 20 {
		g.post("/v1/embeddings", `{}`)
	}
	if back.Load() == 0 {
		t.Error("the gateway takes nothing at all: this test proves nothing")
	}
	m.answer.Slot = slot
	pinned := back.Load()
	if resp, _ := g.post("/v1/responses", `{"input":"x"}`, "Via", via); resp.StatusCode != 200 || back.Load() != pinned+1 {
		t.Errorf("pinned there: %d", resp.StatusCode)
	}
	m.answer.Slot = -1
	g.proxy.backend(slot).site = "local"
	before := back.Load()
	for range 20 {
		g.post("/v1/embeddings", `{}`, "Via", "1.1 local.fedcba9876543210")
	}
	if back.Load() == before {
		t.Error("agents without a site of their own do not use each other any more")
	}
}
