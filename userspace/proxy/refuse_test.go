package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// checkShape reads an error body as the client of that path would.
func checkShape(t *testing.T, path, body string) {
	t.Helper()
	if strings.HasPrefix(path, "/v1/messages") {
		var e anthropicError
		if err := json.Unmarshal([]byte(body), &e); err != nil || e.Type != "error" || e.Error.Type == "" || e.Error.Message == "" {
			t.Errorf("%s: not Anthropic's error shape: %s", path, body)
		}
		return
	}
	var e struct {
		Error map[string]any `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Errorf("%s: %v: %s", path, err, body)
	}
	for _, k := range []string{"message", "type", "param", "code"} {
		if _, ok := e.Error[k]; !ok {
			t.Errorf("%s: no %q in OpenAI's error shape: %s", path, k, body)
		}
	}
}

// TestRefusals: every reason for which the agent answers itself, in the error
// shape of the API that was asked, counted once.
func TestRefusals(t *testing.T) {
	closed := func() string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		return "http://" + ln.Addr().String()
	}
	hangUp := func(c net.Conn) { _, _, _ = readHead(c) }
	small := func(o *Options) { o.Params.MaxBodyBytes = 1000 }
	for _, tc := range []struct {
		name   string
		change func(*Options)
		setup  func(*rig)
		method string
		header []string
		body   string
		status int
		reason Refusal
		taken  int // bytes of memory for bodies that others hold
	}{
		{name: "no backend at all", status: 503, reason: RefusalNoBackend},
		{name: "model that nobody serves", setup: func(g *rig) { g.add("a", echo, "other") }, status: 404, reason: RefusalNoModel},
		{name: "model that one may serve who was never there", setup: func(g *rig) { g.add("a", echo, "other"); g.addURL("b", closed()) }, status: 503, reason: RefusalModelUnlearned},
		{name: "model that two may serve who were never there", setup: func(g *rig) {
			g.add("a", echo, "other")
			for _, name := range []string{"b", "c"} {
				g.fleet.Drain(g.addURL(name, closed()), true)
			}
		}, status: 503, reason: RefusalModelUnlearned},
		{name: "model that is served where nobody listens", setup: func(g *rig) { g.addURL("a", closed(), "m"); g.add("b", echo, "other") }, status: 502, reason: RefusalConnect},
		{name: "every backend drains", setup: func(g *rig) { g.fleet.Drain(g.add("a", echo), true) }, status: 503, reason: RefusalNoBackend},
		{name: "nobody listens", setup: func(g *rig) { g.addURL("a", closed()) }, status: 502, reason: RefusalConnect},
		{name: "backend hangs up before its head", setup: func(g *rig) { g.addRaw("a", hangUp) }, status: 502, reason: RefusalProtocol},
		{name: "backend sends garbage", setup: func(g *rig) {
			g.addRaw("a", func(c net.Conn) { _, _, _ = readHead(c); _, _ = io.WriteString(c, "SSH-2.0-x\r\n\r\n") })
		}, status: 502, reason: RefusalProtocol},
		{name: "backend switches protocols", setup: func(g *rig) {
			g.addRaw("a", func(c net.Conn) {
				_, _, _ = readHead(c)
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
			})
		}, status: 502, reason: RefusalProtocol},
		{name: "head does not come in time (E11)", change: func(o *Options) { o.Params.Timeouts.ResponseHead = 20 * time.Millisecond }, setup: func(g *rig) {
			g.add("a", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() })
		}, status: 504, reason: RefusalHeadTimeout},
		{name: "body over the limit (E10)", change: small, setup: func(g *rig) { g.add("a", echo) }, body: chat(strings.Repeat("x", 1000)), status: 413, reason: RefusalTooLarge},
		{name: "no memory for bodies", change: func(o *Options) { o.Params.MaxBodyBytes, o.Params.BodyMemory = 3000, 4096 }, taken: 1, setup: func(g *rig) { g.add("a", echo) }, status: 503, reason: RefusalMemory},
		{name: "path that is not allowed", change: func(o *Options) { o.Params.AllowedPaths = []string{"/v1/models", "/v1/chat"} }, setup: func(g *rig) { g.add("a", echo) }, status: 404, reason: RefusalPath},
		{name: "WebSocket", setup: func(g *rig) { g.add("a", echo) }, method: "GET", header: []string{"Connection", "keep-alive, Upgrade", "Upgrade", "websocket"}, status: 501, reason: RefusalUpgrade},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var changes []func(*Options)
			if tc.change != nil {
				changes = append(changes, tc.change)
			}
			g := newRig(t, changes...)
			if tc.setup != nil {
				tc.setup(g)
			}
			var others *buffer
			if tc.taken > 0 {
				var err error
				if others, err = g.proxy.bodies.get(tc.taken, 1<<20); err != nil {
					t.Fatal(err)
				}
			}
			for i, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"} {
				method, body := tc.method, tc.body
				if method == "" {
					method = "POST"
				}
				if body == "" {
					body = chat("x")
				}
				req, err := http.NewRequest(method, "http://"+g.addr+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				for j := 0; j+1 < len(tc.header); j += 2 {
					req.Header.Set(tc.header[j], tc.header[j+1])
				}
				resp, got := g.do(req)
				if resp.StatusCode != tc.status {
					t.Errorf("%s: status %d, want %d: %s", path, resp.StatusCode, tc.status, got)
				}
				checkShape(t, path, got)
				if after := resp.Header.Get("Retry-After"); (after != "") != (tc.status == 503) {
					t.Errorf("%s: Retry-After %q on %d", path, after, tc.status)
				}
				if resp.Header.Get("X-Request-Id") == "" {
					t.Errorf("%s: no request id", path)
				}
				if s := g.last(i + 1); s.Refusal != tc.reason || s.Code != tc.status || s.Abort != AbortNone {
					t.Errorf("%s: recorded %+v, want refusal %s", path, s, tc.reason)
				}
			}
			if others != nil {
				others.release()
			}
			g.idle()
		})
	}
}

// TestTooLargeIsAnsweredNotReset: a client that sends all of a body before it
// reads gets its 413, however the body's length is told (E10).
func TestTooLargeIsAnsweredNotReset(t *testing.T) {
	const size = 20 << 20
	for _, tc := range []struct{ name, path, head string }{
		{"declared", "/v1/chat/completions", "Content-Type: application/json\r\nContent-Length: " + fmt.Sprint(size)},
		{"chunked", "/v1/chat/completions", "Content-Type: application/json\r\nTransfer-Encoding: chunked"},
		{"chunked, after it was asked for", "/v1/chat/completions", "Expect: 100-continue\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"},
		{"streamed, declared", "/upload", "Content-Type: audio/wav\r\nContent-Length: " + fmt.Sprint(size)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t, func(o *Options) { o.Params.MaxBodyBytes = 1 << 20 })
			g.add("a", echo)
			c := g.dial()
			if _, err := io.WriteString(c, "POST "+tc.path+" HTTP/1.1\r\nHost: x\r\n"+tc.head+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			piece := strings.Repeat("x", 1<<20)
			for range size >> 20 {
				send := piece
				if strings.Contains(tc.head, "chunked") {
					send = fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
				}
				if _, err := io.WriteString(c, send); err != nil {
					t.Fatalf("the body was not taken: %v", err)
				}
			}
			if strings.Contains(tc.head, "chunked") {
				_, _ = io.WriteString(c, "0\r\n\r\n")
			}
			br := bufio.NewReader(c)
			resp, err := http.ReadResponse(br, nil)
			if err == nil && resp.StatusCode == http.StatusContinue {
				resp, err = http.ReadResponse(br, nil)
			}
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != 413 || err != nil || !resp.Close {
				t.Errorf("status %d, close %v, body %q, error %v", resp.StatusCode, resp.Close, body, err)
			}
			g.idle()
		})
	}
}

// TestTooLargeStreamedChunks: a streamed body of unknown length is cut at the
// limit; the backend never takes it for a whole one.
func TestTooLargeStreamedChunks(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Params.MaxBodyBytes = 100000 })
	whole := make(chan bool, 1)
	g.add("a", func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		whole <- err == nil
	})
	piece := strings.Repeat("x", 50000)
	c := g.dial()
	_, _ = io.WriteString(c, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: audio/wav\r\nTransfer-Encoding: chunked\r\n\r\n")
	for range 5 {
		_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n", len(piece), piece)
	}
	_, _ = io.WriteString(c, "0\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if <-whole {
		t.Error("the backend took the cut body for a whole one")
	}
	g.idle()
}

// TestExpectContinue: the body is asked for only when it is wanted.
func TestExpectContinue(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Params.MaxBodyBytes = 1000 })
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "" {
			t.Error("Expect was passed on")
		}
		echo(w, r)
	})
	t.Run("wanted", func(t *testing.T) {
		for _, path := range []string{"/v1/chat/completions", "/upload"} {
			c := g.dial()
			br := bufio.NewReader(c)
			_, _ = io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Type: x/y\r\nContent-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
			line, err := br.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
				t.Fatalf("%s: %q, error %v", path, line, err)
			}
			_, _ = br.ReadString('\n')
			_, _ = io.WriteString(c, "{}")
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != 200 || !strings.HasSuffix(string(body), "\n{}") {
				t.Errorf("%s: %d %q", path, resp.StatusCode, body)
			}
		}
	})
	t.Run("not wanted", func(*testing.T) {
		got := g.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\nExpect: 100-continue\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 413 ") {
			t.Errorf("got %q", got)
		}
	})
	g.idle()
}

// TestUpgradeOffersAreIgnored: h2c is an offer; the request is served as it is.
func TestUpgradeOffersAreIgnored(t *testing.T) {
	g := newRig(t)
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" || r.Header.Get("Http2-Settings") != "" {
			t.Errorf("passed on: %v", r.Header)
		}
		echo(w, r)
	})
	resp, _ := g.post("/v1/chat/completions", chat("x"), "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABk")
	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if got := g.raw("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 501 ") {
		t.Errorf("CONNECT: %q", got)
	}
}

// TestAllowedPathsAreExact: no other spelling gets around the list.
func TestAllowedPathsAreExact(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Params.AllowedPaths = []string{"/v1/responses", "/v1/models"} })
	g.add("a", echo)
	for path, want := range map[string]int{
		"/v1/responses": 200, "/v1/models": 200, "/v1/models?x=1": 200,
		"/v1/responses/": 404, "/v1/responses/resp_1": 404, "//v1/responses": 404, "/v1/../v1/responses": 404,
		"/v1/%72esponses": 404, "/v1/responses%2Fresp_1": 404, "/V1/responses": 404, "/": 404,
	} {
		if resp, _ := g.post(path, "{}"); resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// TestEveryRefusalHasANameAndAStatus keeps the table whole.
func TestEveryRefusalHasANameAndAStatus(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Refusals() {
		if r.String() == "" || names[r.String()] {
			t.Errorf("refusal %d: name %q is empty or used twice", r, r)
		}
		names[r.String()] = true
		if r != RefusalNone && http.StatusText(r.Status()) == "" {
			t.Errorf("%s: status %d", r, r.Status())
		}
	}
	for _, r := range Retries() {
		if r.String() == "" || r.String() == "invalid" {
			t.Errorf("retry %d has no name", r)
		}
	}
	for _, a := range Aborts() {
		if a.String() == "" || a.String() == "invalid" {
			t.Errorf("abort %d has no name", a)
		}
	}
	if anthropicPath(key.APIUnknown, "/v1/messagesx") || !anthropicPath(key.APIMessages, "/x") {
		t.Error("error shape by path")
	}
}
