package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSmuggling sends what makes two HTTP parsers disagree, over a raw socket,
// followed by an honest request. Nothing may reach the backend that is not one
// of the requests as the agent understood them, and no answer may be another's.
func TestSmuggling(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
	const end = "GET /end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	post := func(path string, header string, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + header + "\r\n\r\n" + body
	}
	for _, tc := range []struct {
		name   string
		send   string
		status string   // of the first answer
		paths  []string // that may reach the backend, in order
	}{
		{"CL and TE", post("/a", "Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), "200", []string{"/a"}},
		{"CL and TE, hidden in the CL's bytes", post("/a", fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked", 5+len(hidden)), "0\r\n\r\n"+hidden), "200", []string{"/a", "/hidden"}},
		{"two equal CLs", post("/a", "Content-Length: 2\r\nContent-Length: 2", "{}"), "200", []string{"/a"}},
		{"two CLs that differ", post("/a", "Content-Length: 2\r\nContent-Length: 50", "{}"+hidden), "400", nil},
		{"CL list", post("/a", "Content-Length: 2, 50", "{}"+hidden), "400", nil},
		{"CL with a sign", post("/a", "Content-Length: +2", "{}"), "400", nil},
		{"negative CL", post("/a", "Content-Length: -2", "{}"), "400", nil},
		{"huge CL", post("/a", "Content-Length: 99999999999999999999", "{}"), "400", nil},
		{"two TEs", post("/a", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "0\r\n\r\n"), "501", nil},
		{"unknown TE", post("/a", "Transfer-Encoding: xchunked", "0\r\n\r\n"), "501", nil},
		{"TE with a vertical tab", post("/a", "Transfer-Encoding: \x0bchunked", "0\r\n\r\n"), "400", nil},
		{"space before the colon", post("/a", "Content-Length : 2", "{}"), "400", nil},
		{"bad chunk size", post("/a", "Transfer-Encoding: chunked", "zz\r\n{}\r\n0\r\n\r\n"+hidden), "400", nil},
		{"overflowing chunk size", post("/a", "Transfer-Encoding: chunked", "10000000000000002\r\n{}\r\n0\r\n\r\n"+hidden), "400", nil},
		{"chunk longer than its size", post("/a", "Transfer-Encoding: chunked", "1\r\n{}\r\n0\r\n\r\n"+hidden), "400", nil},
		{"no CRLF in the header name", post("/a", "X: 1\rContent-Length: 50", hidden), "400", nil},
		{"no Host", "GET /a HTTP/1.1\r\n\r\n", "400", nil},
		{"two Hosts", "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400", nil},
		{"unknown version", "GET /a HTTP/9.9\r\nHost: x\r\n\r\n", "505", nil},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden, "501", nil},
		{"header line without a colon", "GET /a HTTP/1.1\r\nHost: x\r\nbroken\r\n\r\n", "400", nil},
		{"NUL in a value", "GET /a HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", "400", nil},
		{"folded header", "GET /a HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", "200", []string{"/a"}},
		{"bare LF", "GET /a HTTP/1.1\nHost: x\n\n", "200", []string{"/a"}},
		{"pipelined", "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", "200", []string{"/a", "/b"}},
		{"pipelined after a body", post("/a", "Content-Length: 2", "{}") + post("/b", "Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n"), "200", []string{"/a", "/b"}},
		{"head beyond its limit", "GET /a HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", maxRequestHead+8192) + "\r\n\r\n", "431", nil},
		{"trailer that is not allowed", post("/a", "Transfer-Encoding: chunked\r\nTrailer: Content-Length", "2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n"), "400", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t)
			var mu sync.Mutex
			var got []string
			g.add("a", func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				mu.Lock()
				got = append(got, r.URL.Path)
				mu.Unlock()
				_, _ = io.WriteString(w, r.URL.Path)
			})
			c := g.dial()
			if _, err := io.WriteString(c, tc.send+end); err != nil {
				t.Logf("the agent closed while it was sent to: %v", err)
			}
			if tc.status == "200" {
				tc.paths = append(tc.paths, "/end")
			}
			br := bufio.NewReader(c)
			for i := 0; ; i++ {
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					if i == 0 {
						t.Fatalf("no answer: %v", err)
					}
					break
				}
				body, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if i == 0 && !strings.HasPrefix(resp.Status, tc.status) {
					t.Errorf("status %s, want %s", resp.Status, tc.status)
				}
				if resp.StatusCode == 200 && (i >= len(tc.paths) || string(body) != tc.paths[i]) {
					t.Errorf("answer %d is %q, want one of %v", i, body, tc.paths)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(got, tc.paths) {
				t.Errorf("the backend got %v, want %v", got, tc.paths)
			}
			g.idle()
		})
	}
}

// TestSlowHead: a client that never ends its head is let go (slow loris).
func TestSlowHead(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Params.Timeouts.Header = 50 * time.Millisecond })
	g.add("a", echo)
	c := g.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-")
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("not let go: %v", err)
	}
	if len(got) > 0 && !strings.HasPrefix(string(got), "HTTP/1.1 4") {
		t.Errorf("got %q", got)
	}
}

// TestSlowBody: a client whose body stands still gets 408 and is let go; its
// memory with it.
func TestSlowBody(t *testing.T) {
	for _, kind := range []string{"application/json", "audio/wav"} {
		t.Run(kind, func(t *testing.T) {
			g := newRig(t, func(o *Options) { o.Params.Timeouts.Body = 50 * time.Millisecond })
			g.add("a", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
			got := g.raw("POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Type: " + kind + "\r\nContent-Length: 1000\r\n\r\n{")
			if !strings.HasPrefix(got, "HTTP/1.1 408 ") {
				t.Errorf("got %q", got)
			}
			if s := g.last(1); s.Refusal != RefusalSlowBody {
				t.Errorf("recorded %+v", s)
			}
			g.idle()
		})
	}
}

// TestTruncatedBody: a body that ends before its length is not sent anywhere.
func TestTruncatedBody(t *testing.T) {
	g := newRig(t)
	g.add("a", func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	for i, head := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
		c := g.dial()
		_, _ = io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"+head+"\r\n\r\n2\r\n{}")
		_ = c.CloseWrite()
		got, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(got), "HTTP/1.1 400 ") {
			t.Errorf("%s: got %q", head, got)
		}
		if s := g.last(i + 1); s.Refusal != RefusalBadBody || s.Abort != AbortClient {
			t.Errorf("recorded %+v", s)
		}
	}
	g.idle()
}
