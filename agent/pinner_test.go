package agent

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/tools/modelserver"
	"github.com/tautline/tautline/userspace/pin"
	"github.com/tautline/tautline/userspace/poll"
)

// store is an engine that notes what it is asked, polls aside.
type store struct {
	url string
	mu  sync.Mutex
	got []string // method, path and body
}

func (s *store) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

// newStore starts one whose answers are those of h; nil = the stand-in engine's.
func newStore(t *testing.T, h http.Handler) *store {
	t.Helper()
	c := modelserver.Default()
	c.PrefillRate, c.TokenDelay = 1e6, 0
	m, err := modelserver.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &store{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics", "/health", "/v1/models", poll.LoadPath:
			m.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, r.Method+" "+r.RequestURI+" "+string(body))
		s.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if h != nil {
			h.ServeHTTP(w, r)
		} else {
			m.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close(); m.Close() })
	s.url = srv.URL
	return s
}

// ask sends a request and returns the answer with its body.
func ask(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

func idOf(t *testing.T, body string) string {
	t.Helper()
	var v struct{ ID string }
	if err := json.Unmarshal([]byte(body), &v); err != nil || v.ID == "" {
		t.Fatalf("no id in %q: %v", body, err)
	}
	return v.ID
}

func tagKey(t *testing.T) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "tag.key")
	if err := os.WriteFile(p, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

const makeOne = `{"model":"stand-in","input":"hi","max_output_tokens":2}`

// TestATagOfAnotherSiteGoesThroughItsGateway: agent a knows agent b as site b.
// An id that b made works through a as well, b takes the tag off, and no engine
// ever sees one.
func TestATagOfAnotherSiteGoesThroughItsGateway(t *testing.T) {
	key := tagKey(t)
	engineA, engineB := newStore(t, nil), newStore(t, nil)
	siteB, _ := start(t, settings(t, map[string]any{"site": "b", "prefix_affinity.tag_key_path": key}, engineB.url))
	siteA, _ := start(t, settings(t, map[string]any{
		"site": "a", "prefix_affinity.tag_key_path": key, "routing.policy": "round-robin",
		"backends": []map[string]any{{"name": "gpu0", "url": engineA.url}, {"name": "gateway", "url": "http://" + siteB.Addr(), "site": "b"}},
	}))
	a, b := "http://"+siteA.Addr(), "http://"+siteB.Addr()

	_, made := ask(t, "POST", b+"/v1/responses", makeOne)
	id := idOf(t, made)
	if !strings.HasPrefix(id, "resp_b.") {
		t.Fatalf("b made %q", id)
	}
	for range 8 { // chance would send half of them to a's own engine
		resp, body := ask(t, "GET", a+"/v1/responses/"+id, "")
		if resp.StatusCode != 200 || idOf(t, body) != id {
			t.Errorf("through a: %d %.200s", resp.StatusCode, body)
		}
		resp, body = ask(t, "POST", a+"/v1/responses", `{"model":"stand-in","input":"on","max_output_tokens":2,"previous_response_id":"`+id+`"}`)
		if resp.StatusCode != 200 || !strings.HasPrefix(idOf(t, body), "resp_b.") || !strings.Contains(body, `"previous_response_id":"`+id+`"`) {
			t.Errorf("follow-up through a: %d %.200s", resp.StatusCode, body)
		}
	}
	if got := engineA.seen(); len(got) != 0 {
		t.Errorf("a's own engine was asked: %q", got)
	}
	for _, got := range engineB.seen() {
		if strings.Contains(got, "resp_b.") {
			t.Errorf("b's engine saw a tag: %q", got)
		}
	}
	if n := siteA.Status().PinVerdicts["foreign"]; n != 16 {
		t.Errorf("a counted %d foreign requests, want 16", n)
	}

	// An id of a's own engine does not work through b, which does not know a.
	for range 2 { // round robin: one of the two stays here
		if _, made = ask(t, "POST", a+"/v1/responses", makeOne); strings.HasPrefix(idOf(t, made), "resp_a.") {
			break
		}
	}
	n := len(engineB.seen())
	if resp, _ := ask(t, "GET", b+"/v1/responses/"+idOf(t, made), ""); resp.StatusCode != 404 || len(engineB.seen()) != n {
		t.Errorf("an id of a through b: %d", resp.StatusCode)
	}
}

// TestANewConversationStaysHere while a local backend admits, whatever the
// policy says; else it goes to another site and comes back with that site's tag.
func TestANewConversationStaysHere(t *testing.T) {
	engineA, engineB := newStore(t, nil), newStore(t, nil)
	siteB, _ := start(t, settings(t, map[string]any{"site": "b"}, engineB.url))
	siteA, _ := start(t, settings(t, map[string]any{
		"site": "a", "routing.policy": "round-robin",
		"backends": []map[string]any{{"name": "gpu0", "url": engineA.url}, {"name": "gateway", "url": "http://" + siteB.Addr(), "site": "b"}},
	}))
	a := "http://" + siteA.Addr()
	for range 12 {
		_, body := ask(t, "POST", a+"/v1/conversations", "{}")
		if id := idOf(t, body); !strings.HasPrefix(id, "conv_a.") {
			t.Fatalf("a new conversation is %q", id)
		}
	}
	siteA.fleet.Drain(siteA.members["a/gpu0"].slot, true)
	_, body := ask(t, "POST", a+"/v1/conversations", "{}")
	id := idOf(t, body)
	if !strings.HasPrefix(id, "conv_b.") {
		t.Fatalf("with the local site full: %q", id)
	}
	if resp, body := ask(t, "POST", a+"/v1/conversations/"+id+"/items", `{"items":[{"type":"message","role":"user","content":"x"}]}`); resp.StatusCode != 200 {
		t.Errorf("its items: %d %s", resp.StatusCode, body)
	}
}

// TestNotAdmittingIsNotAsked: the backend is there and would answer, but takes
// nothing new: 503 with the time to wait, and no byte for it.
func TestNotAdmittingIsNotAsked(t *testing.T) {
	e, other := newStore(t, nil), newStore(t, nil)
	a, _ := start(t, settings(t, nil, e.url, other.url))
	url := "http://" + a.Addr()
	_, made := ask(t, "POST", url+"/v1/responses", makeOne)
	id := idOf(t, made)
	for _, m := range a.members {
		if strings.Contains(id, pin.ClusterMark(m.cfg.Name)) {
			a.fleet.Drain(m.slot, true)
		}
	}
	before := len(e.seen()) + len(other.seen())
	for _, r := range [][3]string{
		{"GET", "/v1/responses/" + id, ""},
		{"DELETE", "/v1/responses/" + id, ""},
		{"POST", "/v1/responses/" + id + "/cancel", ""},
		{"POST", "/v1/responses", `{"model":"stand-in","input":"x","previous_response_id":"` + id + `"}`},
	} {
		if resp, body := ask(t, r[0], url+r[1], r[2]); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" || !strings.Contains(body, `"error"`) {
			t.Errorf("%s %s: %d %v %s", r[0], r[1], resp.StatusCode, resp.Header, body)
		}
	}
	if got := len(e.seen()) + len(other.seen()) - before; got != 0 {
		t.Errorf("%d requests reached an engine", got)
	}
}

// TestProviderServesItsPathsOnly: with allowed_paths no stored object can be had
// by its id, another site's included, in any spelling of the path.
func TestProviderServesItsPathsOnly(t *testing.T) {
	e := newStore(t, nil)
	a, _ := start(t, settings(t, map[string]any{"allowed_paths": []string{"/v1/responses", "/v1/chat/completions"}}, e.url))
	url := "http://" + a.Addr()
	_, made := ask(t, "POST", url+"/v1/responses", makeOne)
	id := idOf(t, made)
	before := len(e.seen())
	for _, r := range [][2]string{
		{"GET", "/v1/responses/" + id}, {"DELETE", "/v1/responses/" + id}, {"GET", "/v1/responses/" + strings.ReplaceAll(id, ".", "%2E")},
		{"GET", "/v1/responses/" + id + "/input_items"}, {"GET", "/v1/chat/completions/../../v1/responses/" + id},
		{"GET", "/v1/responses%2F" + id}, {"GET", "//v1/responses/" + id}, {"POST", "/v1/conversations"}, {"POST", "/v1/responses/"},
	} {
		if resp, _ := ask(t, r[0], url+r[1], ""); resp.StatusCode != 404 {
			t.Errorf("%s %s: %d", r[0], r[1], resp.StatusCode)
		}
	}
	if got := e.seen()[before:]; len(got) != 0 {
		t.Errorf("the engine was asked %q", got)
	}
}

// events is a Responses stream with all six whole-object events, an error, text
// that looks like ids, data without a space, and a ping. %[1]s stands where a
// stored id gets its tag.
const events = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_%[1]s1\",\"previous_response_id\":\"resp_%[1]s0\",\"conversation\":{\"id\":\"conv_%[1]s9\"},\"metadata\":{\"id\":\"resp_m\"}}}\n\n" +
	": ping\n\n" +
	"event:response.queued\ndata:{\"response\":{\"id\":\"resp_%[1]s1\"}}\n\n" +
	"event: response.in_progress\r\ndata: {\"response\":{\"output\":[{\"id\":\"resp_item\"}],\"id\":\"resp_%[1]s1\"}}\r\n\r\n" +
	"event: response.output_text.delta\ndata: {\"delta\":\"{\\\"response\\\":{\\\"id\\\":\\\"resp_1\\\"}}\",\"item_id\":\"msg_1\"}\n\n" +
	"event: response.incomplete\ndata: {\"response\":{\"id\":\"resp_%[1]s1\",\n\ndata: {\"response\":{\"id\":\"resp_%[1]s1\"}}\n\n" +
	"event: response.failed\ndata: {\"response\":{\"id\":\"resp_%[1]s1\",\"error\":{\"message\":\"no 'resp_%[1]s0' here\"}}}\n\n" +
	"data: {\"type\":\"response.completed\",\"response\":{\"instructions\":\"resp_1\",\"id\":\"resp_%[1]s1\"}}\n\n" +
	"event: error\ndata: {\"message\":\"Response with id 'resp_%[1]s0' not found.\",\"code\":404}\n\n"

// TestStreamsAreTaggedHoweverTheyAreCut (E5): every event that holds the whole
// response, and errors; nothing else; with any cut of the stream, pings kept.
func TestStreamsAreTaggedHoweverTheyAreCut(t *testing.T) {
	plain := fmt.Sprintf(events, "")
	e := newStore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		piece := len(plain)
		fmt.Sscan(r.Header.Get("X-Piece"), &piece)
		for rest := plain; rest != ""; {
			n := min(piece, len(rest))
			_, _ = io.WriteString(w, rest[:n])
			w.(http.Flusher).Flush()
			rest = rest[n:]
		}
	}))
	a, _ := start(t, settings(t, nil, e.url))
	want := fmt.Sprintf(events, "local."+pin.ClusterMark("gpu0")+"..")
	for _, piece := range []string{"1", "2", "7", "64", "100000"} {
		if _, got := ask(t, "POST", "http://"+a.Addr()+"/v1/responses", `{"model":"stand-in","input":"x","stream":true}`, "X-Piece", piece); got != want {
			t.Errorf("in pieces of %s:\n%s\nwant\n%s", piece, got, want)
		}
	}
}

// TestALineOfAMegabyteIsTagged (E15): a whole response in one line of a stream.
func TestALineOfAMegabyteIsTagged(t *testing.T) {
	text := strings.Repeat(`resp_1 \"resp_2\" `, 1<<16)
	form := "event: response.completed\ndata: {\"response\":{\"output\":[{\"text\":\"" + text + "\"}],\"id\":\"resp_%s1\"}}\n\n"
	e := newStore(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, form, "")
	}))
	a, _ := start(t, settings(t, nil, e.url))
	_, got := ask(t, "POST", "http://"+a.Addr()+"/v1/responses", `{"model":"stand-in","input":"x","stream":true}`)
	if want := fmt.Sprintf(form, "local."+pin.ClusterMark("gpu0")+".."); got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}

// TestAnswersOfEveryEndpointAreTagged: what each kind of answer holds, and what
// it must not lose.
func TestAnswersOfEveryEndpointAreTagged(t *testing.T) {
	var answer struct {
		status        int
		content, body string
		more          [2]string
	}
	e := newStore(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", answer.content)
		if answer.more[0] != "" {
			w.Header().Set(answer.more[0], answer.more[1])
		}
		w.WriteHeader(answer.status)
		_, _ = io.WriteString(w, answer.body)
	}))
	a, _ := start(t, settings(t, nil, e.url))
	tag := "local." + pin.ClusterMark("gpu0") + ".."
	id, conv := "resp_"+tag+"1", "conv_"+tag+"1"
	for _, tc := range []struct {
		name, method, path string
		status             int
		content, body      string // %[1]s: the tag
		more               [2]string
		want               int // status for the client; 0 = the same
	}{
		{"response", "POST", "/v1/responses", 200, "application/json", `{"id":"resp_%[1]s1","object":"response","output":[{"id":"resp_2","content":"resp_3"}]}`, [2]string{}, 0},
		{"compaction", "POST", "/v1/responses/compact", 200, "application/json; charset=utf-8", `{"id":"resp_%[1]s1","object":"response.compaction"}`, [2]string{}, 0},
		{"tokens", "POST", "/v1/responses/input_tokens", 200, "application/json", `{"object":"response.input_tokens","input_tokens":1}`, [2]string{}, 0},
		{"deleted", "DELETE", "/v1/responses/" + id, 200, "application/json", `{"id":"resp_%[1]s1","deleted":true}`, [2]string{}, 0},
		{"deleted silently", "DELETE", "/v1/responses/" + id, 204, "application/json", ``, [2]string{"ETag", "kept"}, 0},
		{"not modified", "GET", "/v1/responses/" + id, 304, "application/json", ``, [2]string{"ETag", "kept"}, 0},
		{"input items", "GET", "/v1/responses/" + id + "/input_items", 200, "application/json", `{"data":[{"id":"resp_1"}],"first_id":"resp_1","last_id":"msg_2"}`, [2]string{}, 0},
		{"conversation", "GET", "/v1/conversations/" + conv, 200, "application/json", `{"id":"conv_%[1]s1","metadata":{"id":"conv_1"}}`, [2]string{}, 0},
		{"items", "GET", "/v1/conversations/" + conv + "/items", 200, "application/json", `{"data":[{"id":"conv_1"}],"first_id":"conv_1"}`, [2]string{}, 0},
		{"error", "GET", "/v1/responses/" + id, 404, "application/json", `{"error":{"message":"Response with id 'resp_%[1]s1' not found.","param":"response_id"}}`, [2]string{}, 0},
		{"error of SGLang", "GET", "/v1/responses/" + id, 400, "application/json", `{"message":"resp_%[1]s1 is unknown","type":"x"}`, [2]string{}, 0},
		{"text", "GET", "/v1/responses/" + id, 200, "text/plain", `{"id":"resp_1"}`, [2]string{}, 0},
		{"compressed", "GET", "/v1/responses/" + id, 200, "application/json", "\x1f\x8b", [2]string{"Content-Encoding", "gzip"}, 502},
		{"compressed stream", "GET", "/v1/responses/" + id + "?stream=true", 200, "text/event-stream", "\x1f\x8b", [2]string{"Content-Encoding", "br"}, 502},
		{"compressed error", "GET", "/v1/responses/" + id, 404, "application/json", "\x1f\x8b", [2]string{"Content-Encoding", "gzip"}, 0},
		{"other path", "POST", "/v1/chat/completions", 200, "application/json", `{"id":"resp_1"}`, [2]string{"ETag", "kept"}, 0},
	} {
		answer.status, answer.content, answer.body, answer.more = tc.status, tc.content, strings.ReplaceAll(tc.body, "%[1]s", ""), tc.more
		resp, got := ask(t, tc.method, "http://"+a.Addr()+tc.path, `{"model":"stand-in"}`, "Accept-Encoding", "gzip")
		if tc.want != 0 {
			if resp.StatusCode != tc.want || resp.Header.Get("Content-Encoding") != "" || strings.Contains(got, "\x1f") {
				t.Errorf("%s: %d %v %q", tc.name, resp.StatusCode, resp.Header, got)
			}
			continue
		}
		if want := strings.ReplaceAll(tc.body, "%[1]s", tag); resp.StatusCode != tc.status || got != want {
			t.Errorf("%s: %d %q, want %q", tc.name, resp.StatusCode, got, want)
		}
		if tc.more[0] != "" && resp.Header.Get(tc.more[0]) != tc.more[1] {
			t.Errorf("%s: head %v", tc.name, resp.Header)
		}
	}
}

// TestHeadIsGetWithoutABody: HEAD goes to the holder, and says no length that
// GET would not have.
func TestHeadIsGetWithoutABody(t *testing.T) {
	a, _ := start(t, settings(t, nil, newStore(t, nil).url, newStore(t, nil).url))
	url := "http://" + a.Addr() + "/v1/responses"
	_, made := ask(t, "POST", url, makeOne)
	for range 8 {
		resp, body := ask(t, "HEAD", url+"/"+idOf(t, made), "")
		if resp.StatusCode != 200 || body != "" || resp.Header.Get("Content-Length") != "" {
			t.Errorf("%d, %q, head %v", resp.StatusCode, body, resp.Header)
		}
	}
}

// TestHTTP10ClientsGetTheWholeAnswer (E1): without chunks the end of the
// connection is the end of the body.
func TestHTTP10ClientsGetTheWholeAnswer(t *testing.T) {
	a, _ := start(t, settings(t, nil, newStore(t, nil).url))
	c, err := net.Dial("tcp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body := `{"model":"stand-in","input":"hi","max_output_tokens":2000,"min_tokens":2000}`
	fmt.Fprintf(c, "POST /v1/responses HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	raw, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(raw), "\r\n\r\n")
	if id := idOf(t, text); !strings.HasPrefix(id, "resp_local.") {
		t.Errorf("id %q", id)
	}
}

// TestGzipBodiesArePinned (E7): a compressed follow-up finds its backend; in an
// encoding that is not read it is routed as any other, and counted.
func TestGzipBodiesArePinned(t *testing.T) {
	e, other := newStore(t, nil), newStore(t, nil)
	a, _ := start(t, settings(t, map[string]any{"routing.policy": "round-robin"}, e.url, other.url))
	url := "http://" + a.Addr() + "/v1/responses"
	_, made := ask(t, "POST", url, makeOne)
	next := `{"model":"stand-in","input":"on","max_output_tokens":2,"previous_response_id":"` + idOf(t, made) + `"}`
	var zipped strings.Builder
	z := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(z, next); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if resp, body := ask(t, "POST", url, zipped.String(), "Content-Encoding", "gzip"); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	ask(t, "POST", url, zipped.String(), "Content-Encoding", "br")
	if v := a.Status().PinVerdicts; v["local"] != 8 || v["unread"] != 1 {
		t.Errorf("verdicts %v", v)
	}
}

// TestInputItemsNeedNoType (F7): items without type or id go on as they are.
func TestInputItemsNeedNoType(t *testing.T) {
	e := newStore(t, nil)
	a, _ := start(t, settings(t, nil, e.url))
	body := `{"model":"stand-in","max_output_tokens":2,"input":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"content":"c","role":"user"}]}`
	if resp, text := ask(t, "POST", "http://"+a.Addr()+"/v1/responses", body); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	if got := e.seen(); len(got) != 1 || got[0] != "POST /v1/responses "+body {
		t.Errorf("the engine got %q", got)
	}
}

// TestOtherIDsAreNotOurs (F8): file ids and call ids that clients and engines
// exchange keep their form, in bodies that are stripped as well.
func TestOtherIDsAreNotOurs(t *testing.T) {
	e := newStore(t, nil)
	a, _ := start(t, settings(t, nil, e.url))
	url := "http://" + a.Addr() + "/v1/responses"
	_, made := ask(t, "POST", url, makeOne)
	id := idOf(t, made)
	rest := `"input":[{"role":"user","content":[{"type":"input_file","file_id":"` + id + `"}]},{"type":"function_call_output","call_id":"call_resp_1","output":"` + id + `"}],"metadata":{"previous_response_id":"` + id + `"}}`
	if resp, text := ask(t, "POST", url, `{"model":"stand-in","max_output_tokens":2,"previous_response_id":"`+id+`",`+rest); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	tag, _ := pin.Parse(id)
	got := e.seen()
	if want := `POST /v1/responses {"model":"stand-in","max_output_tokens":2,"previous_response_id":"` + tag.Stripped() + `",` + rest; got[len(got)-1] != want {
		t.Errorf("the engine got %q, want %q", got[len(got)-1], want)
	}
}

// TestUpgradeIsRefused: the WebSocket form of /v1/responses would carry ids that
// nobody tags.
func TestUpgradeIsRefused(t *testing.T) {
	e := newStore(t, nil)
	a, _ := start(t, settings(t, nil, e.url))
	resp, _ := ask(t, "GET", "http://"+a.Addr()+"/v1/responses", "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Key", "x", "Sec-WebSocket-Version", "13")
	if resp.StatusCode != 501 || len(e.seen()) != 0 {
		t.Errorf("%d, the engine got %q", resp.StatusCode, e.seen())
	}
}

// TestAffinityOffStillPins: no keys, nothing remembered, ids pinned all the same.
func TestAffinityOffStillPins(t *testing.T) {
	a, _ := start(t, settings(t, map[string]any{"prefix_affinity.enabled": false}, newStore(t, nil).url, newStore(t, nil).url))
	url := "http://" + a.Addr()
	body := fmt.Sprintf(chat, strings.Repeat("prefix ", 400))
	for range 4 {
		if code, text := post(t, url+"/v1/chat/completions", body); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
	}
	_, text := post(t, "http://"+a.AdminAddr()+"/v1/explain?path=/v1/chat/completions", body)
	var e Explanation
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.NoKeys != "disabled" || e.Model != "stand-in" || len(e.Keys) != 0 || e.Outcome != "not_applicable" {
		t.Errorf("%v: %s", err, text)
	}
	_, made := ask(t, "POST", url+"/v1/responses", makeOne)
	for range 8 {
		if resp, text := ask(t, "GET", url+"/v1/responses/"+idOf(t, made), ""); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	}
	for _, b := range a.Status().Backends {
		if b.IndexEntries != 0 {
			t.Errorf("%s remembers %d keys", b.Name, b.IndexEntries)
		}
	}
	if code, _ := post(t, url+"/v1/chat/completions", `{"model":"another","messages":[]}`); code != 404 {
		t.Errorf("a model that nobody serves: %d", code)
	}
}

// TestPinVerdictsAreCounted on the metrics page, each verdict from the start.
func TestPinVerdictsAreCounted(t *testing.T) {
	a, _ := start(t, settings(t, nil, newStore(t, nil).url))
	url := "http://" + a.Addr()
	_, made := ask(t, "POST", url+"/v1/responses", makeOne)
	ask(t, "GET", url+"/v1/responses/"+idOf(t, made), "")
	ask(t, "GET", url+"/v1/responses/resp_1", "")
	ask(t, "POST", url+"/v1/chat/completions", "{}") // not about stored objects
	_, page := get(t, "http://"+a.AdminAddr()+"/metrics")
	for verdict, n := range map[string]int{
		"free": 1, "local": 1, "untagged": 1,
		"foreign": 0, "forged": 0, "gone": 0, "other_model": 0, "not_admitting": 0, "chosen_tag": 0, "unread": 0,
	} {
		if want := fmt.Sprintf("tautline_pin_verdicts_total{verdict=%q} %d\n", verdict, n); !strings.Contains(page, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if v := a.Status().PinVerdicts; len(v) != 3 || v["local"] != 1 {
		t.Errorf("status has %v", v)
	}
}

// TestReloadsDoNotDisturbPinning: keys and backends change while answers are
// tagged and labels are read.
func TestReloadsDoNotDisturbPinning(t *testing.T) {
	key := tagKey(t)
	e, other := newStore(t, nil), newStore(t, nil)
	a, _ := start(t, settings(t, map[string]any{"prefix_affinity.tag_key_path": key}, e.url, other.url))
	url := "http://" + a.Addr() + "/v1/responses"
	_, made := ask(t, "POST", url, makeOne)
	id := idOf(t, made)
	var cfgs [2]*config.Config
	for i := range cfgs {
		over := map[string]any{"prefix_affinity.tag_key_path": key, "prefix_affinity.threshold": 0.5 + float64(i)/4}
		cfgs[i] = settings(t, over, e.url, other.url)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := a.Reload(cfgs[i%2]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 50 {
		a.Status()
		if resp, body := ask(t, "GET", url+"/"+id, ""); resp.StatusCode != 200 || idOf(t, body) != id {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	close(stop)
	wg.Wait()
}
