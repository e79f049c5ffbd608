package proxy

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tautline/tautline/userspace/key"
)

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// seen is what a backend got.
type seen struct {
	header http.Header
	length int64
	body   string
}

// pinRig is a proxy whose Pinner edits "tagged" and rewrites answers, before one
// backend that notes what it gets and answers with reply.
func pinRig(t *testing.T, reply http.HandlerFunc) (*rig, *seen, *marker) {
	m := &marker{answer: PinAnswer{Slot: -1}}
	g := newRig(t, func(o *Options) { o.Pinner = m })
	got := new(seen)
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*got = seen{r.Header.Clone(), r.ContentLength, string(body)}
		reply(w, r)
	})
	return g, got, m
}

func fine(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, "ok")
}

// TestGzipRequestIsReadForIDs (E7): the ids in a compressed body count. It goes
// on as it came unless one is replaced; then decoded, with the fields that
// describe it put right.
func TestGzipRequestIsReadForIDs(t *testing.T) {
	g, got, _ := pinRig(t, fine)
	plain := `{"model":"m","input":"` + strings.Repeat("x", 5000) + `"}`
	tagged := `{"id":"tagged","input":"` + strings.Repeat("x", 5000) + `"}`
	broken := gzipped(t, tagged)[:40]
	for _, tc := range []struct{ name, encoding, body, want, wantEncoding string }{
		{"nothing to change", "gzip", gzipped(t, plain), gzipped(t, plain), "gzip"},
		{"an id to replace", "gzip", gzipped(t, tagged), strings.Replace(tagged, "tagged", "plain", 1), ""},
		{"old name, upper case", "X-GZIP", gzipped(t, tagged), strings.Replace(tagged, "tagged", "plain", 1), ""},
		{"identity", "identity", tagged, strings.Replace(tagged, "tagged", "plain", 1), ""},
		{"cut off", "gzip", broken, broken, "gzip"},
		{"no gzip at all", "gzip", tagged, tagged, "gzip"},
		{"another encoding", "br", tagged, tagged, "br"},
		{"twice encoded", "gzip, gzip", gzipped(t, gzipped(t, tagged)), gzipped(t, gzipped(t, tagged)), "gzip, gzip"},
	} {
		resp, _ := g.post("/v1/responses", tc.body, "Content-Encoding", tc.encoding,
			"Digest", "sha-256=x", "Content-MD5", "x", "Range", "bytes=0-1", "Accept-Encoding", "gzip")
		h := got.header
		if resp.StatusCode != 200 || got.body != tc.want || got.length != int64(len(tc.want)) || h.Get("Content-Encoding") != tc.wantEncoding {
			t.Errorf("%s: %d; backend got %d (said %d) bytes, encoding %q", tc.name, resp.StatusCode, len(got.body), got.length, h.Get("Content-Encoding"))
		}
		if changed := tc.body != tc.want; changed == (h.Get("Digest") != "") || changed == (h.Get("Content-Md5") != "") {
			t.Errorf("%s: digests of changed (%t) bytes: %v", tc.name, changed, h)
		}
		if h.Get("Range") != "" || h.Get("Accept-Encoding") != "" {
			t.Errorf("%s: an answer was asked for that cannot be rewritten: %v", tc.name, h)
		}
	}
	g.idle()
}

// TestGzipBombIsRefused: what a body decodes to is bounded like any body.
func TestGzipBombIsRefused(t *testing.T) {
	g, got, _ := pinRig(t, fine)
	p := Default()
	p.MaxBodyBytes = 64 << 10
	if err := g.proxy.SetParams(p); err != nil {
		t.Fatal(err)
	}
	if resp, _ := g.post("/v1/responses", gzipped(t, strings.Repeat(" ", 1<<20)), "Content-Encoding", "gzip"); resp.StatusCode != 413 || got.header != nil {
		t.Errorf("status %d, backend saw %v", resp.StatusCode, got.header)
	}
	g.idle()
}

// TestAnyBodyIsReadForIDs: a Content-Type that is no JSON hides no id.
func TestAnyBodyIsReadForIDs(t *testing.T) {
	g, got, _ := pinRig(t, fine)
	if resp, _ := g.post("/v1/responses/compact", `{"id":"tagged"}`, "Content-Type", "text/plain"); resp.StatusCode != 200 || got.body != `{"id":"plain"}` {
		t.Errorf("%d, backend got %q", resp.StatusCode, got.body)
	}
}

// TestRewrittenAnswersHaveTheHeadOfTheirBytes (E1, E2, E5, E13): no length, digest or
// validator of the bytes before, whatever the client and the method; and no field twice.
func TestRewrittenAnswersHaveTheHeadOfTheirBytes(t *testing.T) {
	g, _, _ := pinRig(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, f := range []string{"ETag", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest", "Accept-Ranges", "X-Stays"} {
			h.Set(f, "x")
		}
		h.Set("Content-Type", "application/json")
		if r.Header.Get("X-Want") == "empty" {
			h.Set("Content-Length", "0")
		} else {
			h.Set("Content-Length", "20000")
			w.WriteHeader(http.StatusOK)
			if r.Method != http.MethodHead {
				_, _ = io.WriteString(w, strings.Repeat("abcd", 5000))
			}
		}
	})
	want := strings.Repeat("ABCD", 5000) + "-a"
	req := func(proto, method, extra string) string {
		return g.raw(fmt.Sprintf("%s /v1/responses/x %s\r\nHost: x\r\nConnection: close\r\n%s\r\n", method, proto, extra))
	}
	check := func(name, answer, body string, fields ...string) {
		t.Helper()
		head, rest, _ := strings.Cut(answer, "\r\n\r\n")
		if rest != body {
			t.Errorf("%s: body of %d bytes %.40q, want %d", name, len(rest), rest, len(body))
		}
		low := strings.ToLower(head) + "\r\n"
		for _, f := range append(fields, "x-stays: x") {
			if strings.Count(low, "\n"+f+"\r\n") != 1 {
				t.Errorf("%s: head has %q not once:\n%s", name, f, head)
			}
		}
		for _, f := range []string{"etag", "content-md5", "digest", "content-digest", "repr-digest", "accept-ranges", "content-length: 20000"} {
			if strings.Contains(low, "\n"+f) {
				t.Errorf("%s: head has %s:\n%s", name, f, head)
			}
		}
	}
	// The server splits chunks as it likes: join them.
	answer := req("HTTP/1.1", "GET", "")
	head, chunks, _ := strings.Cut(answer, "\r\n\r\n")
	check("HTTP/1.1", head+"\r\n\r\n"+unchunk(t, chunks), want, "transfer-encoding: chunked")
	check("HTTP/1.0", req("HTTP/1.0", "GET", ""), want)
	check("HEAD", req("HTTP/1.1", "HEAD", ""), "")
	check("empty", req("HTTP/1.0", "GET", "X-Want: empty\r\n"), "")
	g.idle()
}

// TestTrailersOfChangedBytes: a digest that comes behind a body is as wrong as one
// before it, announced or not.
func TestTrailersOfChangedBytes(t *testing.T) {
	var trailer http.Header
	g, got, _ := pinRig(t, func(w http.ResponseWriter, r *http.Request) {
		trailer = r.Trailer.Clone()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Trailer", "Content-Digest, X-Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Content-Digest", "x")
		w.Header().Set("X-Sum", "x")
		w.Header().Set(http.TrailerPrefix+"Repr-Digest", "x")
	})
	req, err := http.NewRequest("POST", "http://"+g.addr+"/v1/responses", io.MultiReader(strings.NewReader(`{"previous_response_id":"tagged"}`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Trailer = http.Header{"Digest": {"x"}, "X-Check": {"x"}}
	resp, body := g.do(req)
	if strings.Contains(got.body, "tagged") || body != "BODY-a" {
		t.Fatalf("nothing was changed: %q, %q", got.body, body)
	}
	if len(trailer) != 1 || trailer.Get("X-Check") != "x" {
		t.Errorf("the backend got %v", trailer)
	}
	if len(resp.Trailer) != 1 || resp.Trailer.Get("X-Sum") != "x" {
		t.Errorf("the client got %v", resp.Trailer)
	}
	g.idle()
}

// unchunk undoes the chunked encoding.
func unchunk(t *testing.T, s string) string {
	t.Helper()
	var out strings.Builder
	for {
		var n int
		line, rest, ok := strings.Cut(s, "\r\n")
		if _, err := fmt.Sscanf(line, "%x", &n); err != nil || !ok || len(rest) < n+2 {
			t.Fatalf("broken chunk at %q", s)
		}
		if n == 0 {
			return out.String()
		}
		out.WriteString(rest[:n])
		s = rest[n+2:]
	}
}

// TestRefusedAnswer: what the Pinner cannot read is 502, counted, and none of it
// reaches the client; the connection goes on.
func TestRefusedAnswer(t *testing.T) {
	g, _, _ := pinRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, gzipped(t, "secret"))
	})
	for i := range 3 {
		resp, body := g.post("/v1/responses", `{}`)
		if resp.StatusCode != 502 || resp.Header.Get("Content-Encoding") != "" || !strings.Contains(body, `"bad_gateway"`) {
			t.Fatalf("%d %v %q", resp.StatusCode, resp.Header, body)
		}
		if got := g.last(i + 1); got.Refusal != RefusalPinEncoded {
			t.Errorf("refusal %s", got.Refusal)
		}
	}
	g.idle()
}

// deaf is a Pinner that must hear of nothing but paths.
type deaf struct{ t *testing.T }

func (deaf) Readable(PinRequest) bool { return false }
func (d deaf) Request(PinRequest) PinAnswer {
	d.t.Error("asked about a request that is not its own")
	return PinAnswer{Slot: -1}
}
func (d deaf) Response(string, PinRequest, int, http.Header) (Rewriter, Refusal) {
	d.t.Error("asked about an answer that is not its own")
	return nil, RefusalNone
}

// TestOtherRequestsAreNotAskedAbout: they keep their encodings and ranges, and
// their bodies stay what they were.
func TestOtherRequestsAreNotAskedAbout(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Pinner = deaf{t} })
	var got seen
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{r.Header.Clone(), r.ContentLength, string(body)}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("ETag", "x")
		_, _ = io.WriteString(w, "zipped")
	})
	body := gzipped(t, chat("x"))
	resp, answer := g.post("/v1/chat/completions", body, "Content-Encoding", "gzip", "Accept-Encoding", "gzip", "Range", "bytes=0-")
	if got.body != body || got.header.Get("Range") == "" || got.header.Get("Accept-Encoding") != "gzip" || answer != "zipped" || resp.Header.Get("Etag") != "x" || resp.ContentLength != 6 {
		t.Errorf("backend got %q with %v; client %q with %v", got.body, got.header, answer, resp.Header)
	}
}

// marker is a Pinner that pins, edits and rewrites.
type marker struct {
	NoPin
	answer PinAnswer
}

func (m marker) Request(r PinRequest) PinAnswer {
	a := m.answer
	if at := strings.Index(string(r.Body), `"tagged"`); at >= 0 {
		a.Edits = []Edit{{At: key.Span{Start: at, End: at + len(`"tagged"`)}, With: []byte(`"plain"`)}}
	}
	return a
}
func (m marker) Readable(PinRequest) bool { return true }
func (m marker) Response(backend string, _ PinRequest, _ int, h http.Header) (Rewriter, Refusal) {
	if h.Get("Content-Encoding") != "" {
		return nil, RefusalPinEncoded
	}
	return upper(backend), RefusalNone
}

type upper string

func (u upper) Append(dst, p []byte) []byte {
	return append(dst, strings.ToUpper(string(p))...)
}
func (u upper) Finish(dst []byte) []byte { return append(dst, "-"+u...) }

// TestPinner: the backend, path and body that a Pinner says, lengths right after
// a rewrite (E1, E2).
func TestPinner(t *testing.T) {
	var slot int
	m := &marker{}
	g := newRig(t, func(o *Options) { o.Pinner = m })
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("Accept-Encoding was passed on although the answer must be read")
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = fmt.Fprintf(w, "%s %d %s", r.RequestURI, r.ContentLength, body)
	}
	g.add("a", handler)
	slot = g.add("b", handler)
	m.answer = PinAnswer{Slot: slot, Path: "/v1/responses/plain%2F"}
	for range 5 {
		resp, body := g.post("/v1/responses?q=1", `{"id":"tagged"}`, "Accept-Encoding", "gzip")
		if want := `/V1/RESPONSES/PLAIN%2F?Q=1 14 {"ID":"PLAIN"}-b`; resp.StatusCode != 200 || body != want {
			t.Errorf("%d %q, want %q", resp.StatusCode, body, want)
		}
	}
	m.answer = PinAnswer{Slot: slot, Backend: "b"}
	if resp, _ := g.post("/v1/responses", `{"x":1}`); resp.StatusCode != 200 {
		t.Errorf("the backend that is meant: %d", resp.StatusCode)
	}
	m.answer.Backend = "former"
	if resp, _ := g.post("/v1/responses", `{"x":1}`); resp.StatusCode != 404 {
		t.Errorf("another backend in its slot: %d", resp.StatusCode)
	}
	m.answer = PinAnswer{Slot: 77}
	if resp, _ := g.post("/v1/responses", `{"x":1}`); resp.StatusCode != 404 {
		t.Errorf("a backend that is gone: %d", resp.StatusCode)
	}
	g.fleet.Drain(slot, true)
	m.answer = PinAnswer{Slot: slot}
	if resp, _ := g.post("/v1/responses", `{"x":1}`); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" {
		t.Errorf("a backend that does not admit: %d", resp.StatusCode)
	}
	m.answer = PinAnswer{Slot: -1, Refuse: RefusalPinRequestID}
	if resp, _ := g.post("/v1/responses", `{"x":1}`); resp.StatusCode != 400 {
		t.Errorf("refused by the Pinner: %d", resp.StatusCode)
	}
	g.idle()
}
