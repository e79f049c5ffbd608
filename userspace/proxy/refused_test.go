package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// full is an engine whose queue is full; asked counts the requests.
func full(code int, asked *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"error":"full"}`)
	}
}

// until503 sends requests of this many words, none of them known, until one has
// been refused and sent again, and returns how many it took.
func until503(t *testing.T, g *rig, words int) int {
	t.Helper()
	for n := 1; n <= 50; n++ {
		body := chat(strings.Repeat(fmt.Sprint("word", n, " "), words))
		resp, got := g.post("/v1/chat/completions", body)
		if resp.StatusCode != 200 || !strings.HasSuffix(got, body) {
			t.Fatalf("request %d: %d, %d bytes, want an echo of %d", n, resp.StatusCode, len(got), len(body))
		}
		if g.last(n).Retry == RetryRefused {
			return n
		}
	}
	t.Fatal("the full engine was never chosen")
	return 0
}

// TestA503IsOfferedToAnotherBackend, whole, whatever its size; what the refusing
// backend was believed to hold is forgotten, and every account moves along.
func TestA503IsOfferedToAnotherBackend(t *testing.T) {
	for name, words := range map[string]int{"short": 1, "long": 100_000} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t)
			var asked atomic.Int64
			a := g.add("full", full(503, &asked))
			g.add("free", echo)
			n := until503(t, g, words)
			s := g.last(n)
			if s.Backend != "free" || s.Code != 200 || s.Refusal != RefusalNone || asked.Load() != 1 {
				t.Errorf("recorded %+v, the full engine was asked %d times", s, asked.Load())
			}
			if len(g.ledger.retries) != 1 || g.ledger.retries[0] != RetryRefused {
				t.Errorf("retries %v", g.ledger.retries)
			}
			g.idle()
			if b := g.fleet.Snapshot(g.proxy.clock(), nil)[a]; b.IndexEntries != 0 {
				t.Errorf("%d keys remembered of a backend that refused", b.IndexEntries)
			}
		})
	}
}

// TestA503BeforeTheBodyWasRead: the engine refuses by the head alone and closes.
// The body goes to the next one whole, though the first write of it may go on.
func TestA503BeforeTheBodyWasRead(t *testing.T) {
	g := newRig(t)
	g.addRaw("full", func(c net.Conn) {
		if _, _, err := readHead(c); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			_, _ = io.Copy(io.Discard, c) // no reset: that is another case
		}
	})
	g.add("free", echo)
	until503(t, g, 200_000)
	g.idle()
}

// TestA503ThatIsPassedOn: with the engine's own words, and asked once each.
func TestA503ThatIsPassedOn(t *testing.T) {
	for _, tc := range []struct {
		name     string
		backends int
		code     int
		path     string
		change   func(*Options)
		asked    int64
	}{
		{"nobody else", 1, 503, "/v1/chat/completions", nil, 1},
		{"all are full", 2, 503, "/v1/chat/completions", nil, 2},
		{"no more than asked for", 5, 503, "/v1/chat/completions", nil, 2},
		{"two more", 5, 503, "/v1/chat/completions", func(o *Options) { o.Params.Retry503 = 2 }, 3},
		{"more than there are", 2, 503, "/v1/chat/completions", func(o *Options) { o.Params.Retry503 = 8 }, 2},
		{"off", 2, 503, "/v1/chat/completions", func(o *Options) { o.Params.Retry503 = 0 }, 1},
		{"not a prompt", 2, 503, "/v1/embeddings", nil, 1},
		{"no room to keep the body", 2, 503, "/v1/chat/completions", func(o *Options) { o.Params.MaxBodyBytes, o.Params.BodyMemory = 4096, 4096 }, 1},
		{"a stored object", 2, 503, "/v1/responses", func(o *Options) { o.Pinner = marker{answer: PinAnswer{Slot: 1}} }, 1},
		{"429", 2, 429, "/v1/chat/completions", nil, 1},
		{"500", 2, 500, "/v1/chat/completions", nil, 1},
		{"529", 2, 529, "/v1/messages", nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t, func(o *Options) {
				if tc.change != nil {
					tc.change(o)
				}
			})
			var asked atomic.Int64
			for b := range tc.backends {
				g.add(string(rune('a'+b)), full(tc.code, &asked))
			}
			resp, body := g.post(tc.path, chat("x"))
			if resp.StatusCode != tc.code || !strings.HasPrefix(strings.ToLower(body), `{"error":"full"}`) {
				t.Errorf("%d %q, want the engine's own %d", resp.StatusCode, body, tc.code)
			}
			if asked.Load() != tc.asked {
				t.Errorf("asked %d times, want %d", asked.Load(), tc.asked)
			}
			if s := g.last(1); s.Code != tc.code || s.Refusal != RefusalNone || int64(len(g.ledger.retries)) != tc.asked-1 {
				t.Errorf("recorded %+v, retries %v", s, g.ledger.retries)
			}
			g.idle()
		})
	}
}

// TestA503ThenNobodyThere: what the last backend did is what the client sees.
func TestA503ThenNobodyThere(t *testing.T) {
	for range 8 { // either may be the first choice
		g := newRig(t)
		var asked atomic.Int64
		g.add("full", full(503, &asked))
		g.addURL("dead", "http://"+refusing(t))
		resp, _ := g.post("/v1/chat/completions", chat("x"))
		g.idle()
		got := fmt.Sprintf("%d %v", resp.StatusCode, g.ledger.retries)
		if got != "503 [connect]" && got != "502 [refused connect]" {
			t.Errorf("%s, asked %d times", got, asked.Load())
		}
	}
}
