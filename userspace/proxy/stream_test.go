package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tautline/tautline/test/testutil"
)

// events is a backend that streams what is sent to its channel, one flush each.
func events(w http.ResponseWriter, r *http.Request, pieces <-chan string) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(200)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case p, ok := <-pieces:
			if !ok {
				return
			}
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// TestStreamIsFlushedPerRead: each event reaches the client before the next one
// is sent, the head before the first. A proxy that buffers would hang here.
func TestStreamIsFlushedPerRead(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/messages", "/unknown"} {
		g := newRig(t)
		pieces := make(chan string)
		g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
		resp, err := g.client.Post("http://"+g.addr+path, "application/json", strings.NewReader(chat("x")))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			want := fmt.Sprintf("data: %d\n\n", i)
			pieces <- want
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Fatalf("%s: got %q, error %v", path, got, err)
			}
		}
		close(pieces)
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Errorf("%s: rest %q, error %v", path, rest, err)
		}
		_ = resp.Body.Close()
		g.idle()
	}
}

// writeCount counts the writes to clients.
type writeCount struct {
	NoSplice
	n atomic.Int64
}

func (w *writeCount) WrapListener(ln net.Listener) net.Listener { return countedListener{ln, w} }

type countedListener struct {
	net.Listener
	w *writeCount
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.w}, err
}

type countedConn struct {
	net.Conn
	w *writeCount
}

func (c countedConn) Write(p []byte) (int, error) {
	c.w.n.Add(1)
	return c.Conn.Write(p)
}

// TestHeadIsNotHeldBack: a head that comes alone reaches the client before there is
// a body, also where a part of a chunk has come with it; one that comes with a whole one
// goes out with it.
func TestHeadIsNotHeldBack(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	const first, last = "9\r\ndata: 1\n\n\r\n", "0\r\n\r\n"
	for _, with := range []string{"", "9", "9\r\n", "9\r\nd", first} {
		w := &writeCount{}
		g := newRig(t, func(o *Options) { o.Splicer = w })
		read := make(chan struct{})
		g.addRaw("a", func(c net.Conn) {
			for {
				r, _, err := readHead(c)
				if err != nil {
					return
				}
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				_, _ = io.WriteString(c, head+with)
				if with != first {
					<-read
					_, _ = io.WriteString(c, first[len(with):])
				}
				<-read
				_, _ = io.WriteString(c, last)
			}
		})
		resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
		if err != nil {
			t.Fatal(err)
		}
		want := int64(2)
		if with != first {
			want = 3
			read <- struct{}{}
		}
		text := make([]byte, 9)
		if _, err := io.ReadFull(resp.Body, text); err != nil {
			t.Fatal(err)
		}
		read <- struct{}{}
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(text)+string(rest) != "data: 1\n\n" {
			t.Errorf("%q, %v", string(text)+string(rest), err)
		}
		g.idle()
		if n := w.n.Load(); n != want {
			t.Errorf("head with %q: %d writes, want %d", with, n, want)
		}
	}
}

// TestFirstTokenReleasesTokens: the uncached tokens in flight are released at the
// first token and no sooner; for Responses that is not response.created. The
// request itself counts until its end (A10).
func TestFirstTokenReleasesTokens(t *testing.T) {
	long := strings.Repeat("word ", 2000)
	for _, tc := range []struct {
		path, before, token string
	}{
		{"/v1/chat/completions", "", "data: {\"choices\":[]}\n\n"},
		{"/v1/completions", ": comment\n\n", "data: {\"choices\":[]}\n\n"},
		{"/v1/messages", "event: ping\ndata: {}\n\n", "event: message_start\ndata: {}\n\n"},
		{"/v1/responses", "event: response.created\ndata: {}\n\n", "event: response.output_text.delta\ndata: {}\n\n"},
	} {
		t.Run(tc.path, func(t *testing.T) {
			g := newRig(t)
			pieces := make(chan string)
			g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
			body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + long + `"}],"prompt":"` + long + `","input":"` + long + `"}`
			resp, err := g.client.Post("http://"+g.addr+tc.path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			read := func(s string) {
				pieces <- s
				if _, err := io.ReadFull(resp.Body, make([]byte, len(s))); err != nil {
					t.Fatal(err)
				}
			}
			if tc.before != "" {
				read(tc.before)
			}
			if s := g.fleet.Snapshot(0, nil)[0]; s.InFlight != 1 || s.Uncached < 1000 {
				t.Fatalf("before the first token: %d requests, %d tokens in flight", s.InFlight, s.Uncached)
			}
			read(tc.token)
			testutil.Eventually(t, "the tokens are released", func() bool { return g.fleet.Snapshot(0, nil)[0].Uncached == 0 })
			if s := g.fleet.Snapshot(0, nil)[0]; s.InFlight != 1 || s.Decoding != 1 {
				t.Errorf("after the first token: %d requests in flight, %d decoding", s.InFlight, s.Decoding)
			}
			close(pieces)
			_, _ = io.Copy(io.Discard, resp.Body)
			g.idle()
			if got := g.ledger.tokens; len(got) != 1 || got[0] != "a" {
				t.Errorf("first tokens recorded: %v", got)
			}
		})
	}
}

// TestUnknownPathsCount: what is routed by load is in flight like anything else (A13).
func TestUnknownPathsCount(t *testing.T) {
	g := newRig(t)
	pieces := make(chan string)
	g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
	resp, err := g.client.Get("http://" + g.addr + "/whatever")
	if err != nil {
		t.Fatal(err)
	}
	if s := g.fleet.Snapshot(0, nil)[0]; s.InFlight != 1 {
		t.Errorf("%d requests in flight", s.InFlight)
	}
	close(pieces)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	g.idle()
}

// TestLongDataLine: a line of 1 MiB passes (E15).
func TestLongDataLine(t *testing.T) {
	line := "data: " + strings.Repeat("x", 1<<20) + "\n\ndata:no space\n\n: ping\n\n"
	g := newRig(t)
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, line)
	})
	for _, path := range []string{"/v1/chat/completions", "/v1/responses"} {
		if _, body := g.post(path, chat("x")); body != line {
			t.Errorf("%s: %d bytes, want %d", path, len(body), len(line))
		}
	}
}

// TestUsageTeachesTheFleet: what the engine reports reaches the accounts (G20).
func TestUsageTeachesTheFleet(t *testing.T) {
	g := newRig(t)
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":50,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":40}}}`)
	})
	g.post("/v1/chat/completions", chat(strings.Repeat("x", 600)))
	g.idle()
	if s := g.fleet.Snapshot(0, nil)[0]; s.CachedTokens != 40 || s.UsageTokens != 50 {
		t.Errorf("reported %d of %d tokens cached, want 40 of 50", s.CachedTokens, s.UsageTokens)
	}
}

// TestStatusAndMemory: 2xx keeps the prompt's keys, 429 and 5xx drop them, and
// only 5xx ejects (E11).
func TestStatusAndMemory(t *testing.T) {
	for _, tc := range []struct {
		code     int
		kept     bool
		admitted bool
	}{{200, true, true}, {201, true, true}, {400, false, true}, {404, false, true}, {429, false, true}, {500, false, false}, {503, false, false}} {
		g := newRig(t)
		g.add("a", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(tc.code)
			_, _ = io.WriteString(w, "as it is")
		})
		for range 10 {
			if resp, body := g.post("/v1/chat/completions", chat(strings.Repeat("x", 2000))); resp.StatusCode != tc.code || body != "as it is" {
				t.Errorf("%d: got %d %q", tc.code, resp.StatusCode, body)
			}
		}
		g.idle()
		s := g.fleet.Snapshot(g.proxy.clock(), nil)[0]
		if (s.IndexEntries > 0) != tc.kept || s.Admitted != tc.admitted {
			t.Errorf("%d: %d keys held, admitted %v", tc.code, s.IndexEntries, s.Admitted)
		}
	}
}

// TestTrailers go through in both directions, announced or not.
func TestTrailers(t *testing.T) {
	for _, kind := range []string{"application/json", "audio/wav"} {
		g := newRig(t)
		g.add("a", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("X-Sum", "back:"+r.Trailer.Get("X-Check"))
			w.Header().Set(http.TrailerPrefix+"X-Late", "late")
		})
		req, err := http.NewRequest("POST", "http://"+g.addr+"/v1/chat/completions", io.MultiReader(strings.NewReader(chat("x"))))
		if err != nil {
			t.Fatal(err)
		}
		if kind == "audio/wav" {
			req.URL.Path = "/upload"
		}
		req.Header.Set("Content-Type", kind)
		req.Trailer = http.Header{"X-Check": {"sum"}}
		resp, body := g.do(req)
		if body != "body" || resp.Trailer.Get("X-Sum") != "back:sum" || resp.Trailer.Get("X-Late") != "late" {
			t.Errorf("%s: body %q, trailer %v", kind, body, resp.Trailer)
		}
		g.idle()
	}
}

// TestInformational: 103 is passed on, with its header and without leaving it in
// the answer's; HTTP/1.0 clients get none.
func TestInformational(t *testing.T) {
	g := newRig(t)
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</x>")
		w.WriteHeader(103)
		w.Header().Del("Link")
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "ok")
	})
	var early []string
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			early = append(early, fmt.Sprint(code, h.Get("Link")))
			return nil
		},
	})
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+g.addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, body := g.do(req)
	if fmt.Sprint(early) != "[103</x>]" || body != "ok" || resp.Header.Get("Link") != "" {
		t.Errorf("early %v, body %q, header %v", early, body, resp.Header)
	}
	if got := g.raw("GET / HTTP/1.0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.0 200 ") {
		t.Errorf("HTTP/1.0 got %q", got)
	}
}

// TestHTTP10Client gets no chunks: a streamed answer ends with the connection.
func TestHTTP10Client(t *testing.T) {
	g := newRig(t)
	pieces := make(chan string, 2)
	g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
	pieces <- "data: 1\n\n"
	pieces <- "data: 2\n\n"
	close(pieces)
	body := chat("x")
	got := g.raw(fmt.Sprintf("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	if strings.Contains(got, "chunked") || !strings.HasSuffix(got, "\r\n\r\ndata: 1\n\ndata: 2\n\n") {
		t.Errorf("got %q", got)
	}
	g.idle()
}

// TestHead and answers without a body.
func TestAnswersWithoutBody(t *testing.T) {
	g := newRig(t)
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.WriteHeader(304)
		case "/empty":
		default:
			w.Header().Set("Content-Length", "1234")
			if r.Method != "HEAD" {
				_, _ = w.Write(make([]byte, 1234))
			}
		}
	})
	for _, tc := range []struct {
		method, path string
		status       int
		length       int64
	}{{"HEAD", "/", 200, 1234}, {"GET", "/", 200, 1234}, {"GET", "/204", 204, 0}, {"GET", "/304", 304, -1}, {"GET", "/empty", 200, 0}} {
		req, err := http.NewRequest(tc.method, "http://"+g.addr+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, body := g.do(req)
		if resp.StatusCode != tc.status || tc.length >= 0 && resp.ContentLength != tc.length || tc.method == "HEAD" && body != "" {
			t.Errorf("%s %s: %d, length %d, %d bytes", tc.method, tc.path, resp.StatusCode, resp.ContentLength, len(body))
		}
	}
	g.idle()
}

// TestRedirectsAndCompressionPass: neither is followed or undone.
func TestRedirectsAndCompressionPass(t *testing.T) {
	g := newRig(t)
	const packed = "\x1f\x8b not really gzip"
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(307)
		_, _ = w.Write(b)
	})
	resp, body := g.post("/v1/chat/completions", packed, "Content-Encoding", "gzip")
	if resp.StatusCode != 307 || resp.Header.Get("Location") != "/elsewhere" || resp.Header.Get("Content-Encoding") != "gzip" || body != packed {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
	g.idle()
}

// TestGzipRequestHasNoKeys: forwarded as it is, routed by load (E7).
func TestGzipRequestHasNoKeys(t *testing.T) {
	g := newRig(t)
	g.add("a", echo, "other")
	g.add("b", echo, "other")
	resp, _ := g.post("/v1/chat/completions", chat(strings.Repeat("x", 1000)), "Content-Encoding", "gzip")
	if resp.StatusCode != 200 {
		t.Errorf("status %d: an encoded body has no model to be refused for", resp.StatusCode)
	}
	if d := g.ledger.decisions[0]; d.Keys != 0 {
		t.Errorf("decision %+v", d)
	}
}

// TestModelInUnknownJSON chooses among the backends that serve it.
func TestModelInUnknownJSON(t *testing.T) {
	g := newRig(t)
	answer := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }
	}
	g.add("a", answer("a"), "m1")
	g.add("b", answer("b"), "m2")
	for range 10 {
		if _, body := g.post("/v1/embeddings", `{"input":"x","model":"m2"}`); body != "b" {
			t.Fatalf("went to %q", body)
		}
	}
	if resp, _ := g.post("/v1/embeddings", `{"model":"m3"}`); resp.StatusCode != 404 {
		t.Errorf("unknown model: %d", resp.StatusCode)
	}
}

// TestNoHeaderChoosesTheBackend: those by which other routers are told, or tell each
// other, where to go are the client's own words here (G25f).
func TestNoHeaderChoosesTheBackend(t *testing.T) {
	g := newRig(t)
	g.addRaw("other", func(c net.Conn) { t.Error("it was asked") })
	other := g.proxy.backend(0).base.Host
	g.fleet.SetModels(0, []string{"m2"})
	g.add("right", echo, "m")
	for _, field := range []string{"X-Gateway-Destination-Endpoint", "X-Prefiller-Host-Port", "X-Data-Parallel-Host-Port", "X-Backend-Url", "X-Tautline-Backend", "X-Session-Id"} {
		if resp, _ := g.post("/v1/chat/completions", chat("x"), field, other); resp.StatusCode != 200 {
			t.Errorf("%s: %d", field, resp.StatusCode)
		}
	}
}

// TestDebugHeaders are off unless asked for.
func TestDebugHeaders(t *testing.T) {
	g := newRig(t)
	g.add("a", echo)
	if resp, _ := g.post("/", "{}"); resp.Header.Get("X-Tautline-Backend") != "" {
		t.Error("on by default")
	}
	p := Default()
	p.DebugHeaders = true
	if err := g.proxy.SetParams(p); err != nil {
		t.Fatal(err)
	}
	if resp, _ := g.post("/", "{}"); resp.Header.Get("X-Tautline-Backend") != "a" || resp.Header.Get("X-Tautline-Outcome") != "lone" {
		t.Errorf("header %v", resp.Header)
	}
}
