package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What SGLang 0.5.23 sends when its queue is full, and what it sends else.
const (
	sglangFull = `data: {"error": {"object": "error", "message": "The request queue is full.", "type": "SERVICE_UNAVAILABLE", "param": null, "code": 503}}` + "\n\n"
	sglangRole = `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	sglangDone = "data: [DONE]\n\n"
	sglangHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)

func TestRefusalEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		code int
		more bool
	}{
		"nothing":                {"", 0, true},
		"the beginning":          {sglangFull[:9], 0, true},
		"all but its end":        {sglangFull[:len(sglangFull)-2], 0, true},
		"one line":               {sglangFull[:len(sglangFull)-1], 503, false},
		"whole":                  {sglangFull + sglangDone, 503, false},
		"another spelling":       {`data: {"error":{"code":503}}` + "\r\n", 503, false},
		"429":                    {`data: {"error": {"code": 429}}` + "\n", 429, false},
		"another error":          {strings.Replace(sglangFull, "503", "400", 1), 0, false},
		"500":                    {strings.Replace(sglangFull, "503", "500", 1), 0, false},
		"a code that is text":    {`data: {"error": {"code": "503"}}` + "\n", 0, false},
		"an error that is none":  {`data: {"error": null}` + "\n", 0, false},
		"no JSON":                {`data: {"error": {"code": 503}` + "\n", 0, false},
		"a token":                {sglangRole, 0, false},
		"the end":                {sglangDone, 0, false},
		"a refusal as a comment": {": " + sglangFull, 0, false},
		"a refusal in a text":    {`data: {"choices":[{"text":"{\"error\":{\"code\":503}}"}]}` + "\n", 0, false},
	} {
		if code, more := refusalEvent([]byte(tc.in)); code != tc.code || more != tc.more {
			t.Errorf("%s: %d, more %v; want %d, %v", name, code, more, tc.code, tc.more)
		}
	}
}

func refusesInside(o *Options) { o.RefusesInside = func(int) bool { return true } }

// streams is an engine that answers with these chunks, each sent on its own, the head
// before them; asked counts the requests.
func streams(asked *atomic.Int64, chunks ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked.Add(1)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		flush := http.NewResponseController(w).Flush
		_ = flush()
		for _, c := range chunks {
			_, _ = io.WriteString(w, c)
			_ = flush()
		}
	}
}

// TestARefusalInsideAStreamIsOfferedToAnotherBackend, like a 503: the client sees the
// other one's answer alone, and every account moves along.
func TestARefusalInsideAStreamIsOfferedToAnotherBackend(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/chat/completions": chat(strings.Repeat("%[1]d word ", 1000)),
		"/v1/completions":      `{"model":"m","stream":true,"prompt":"` + strings.Repeat("%[1]d word ", 1000) + `"}`,
	} {
		t.Run(path, func(t *testing.T) {
			g := newRig(t, refusesInside)
			var asked, served atomic.Int64
			full := g.add("full", streams(&asked, sglangFull, sglangDone))
			g.add("free", streams(&served, sglangRole, sglangDone))
			n := int64(0)
			for asked.Load() == 0 && n < 50 {
				n++
				resp, got := g.post(path, fmt.Sprintf(body, n))
				if resp.StatusCode != 200 || got != sglangRole+sglangDone {
					t.Fatalf("request %d: %d %q", n, resp.StatusCode, got)
				}
			}
			s := g.last(int(n))
			if s.Backend != "free" || s.Code != 200 || s.Retry != RetryRefused || asked.Load() != 1 || served.Load() != n {
				t.Errorf("recorded %+v, asked %d and %d times for %d", s, asked.Load(), served.Load(), n)
			}
			g.idle()
			if b := g.fleet.Snapshot(g.proxy.clock(), nil)[full]; b.IndexEntries != 0 {
				t.Errorf("%d keys remembered of a backend that refused", b.IndexEntries)
			}
			for _, name := range g.ledger.tokens {
				if name != "free" {
					t.Errorf("a first token of %q", name)
				}
			}
		})
	}
}

// TestARefusalInsideAStreamThatIsPassedOn, byte for byte, where nobody else is left to
// ask, or it is none; the accounts hear of what is one.
func TestARefusalInsideAStreamThatIsPassedOn(t *testing.T) {
	of := func(code string) string { return strings.Replace(sglangFull, "503", code, 1) }
	const stream, whole = `{"model":"m","stream":true,`, `{"model":"m",`
	messages := `"messages":[{"role":"user","content":"` + strings.Repeat("x", 1000) + `"}]}`
	for name, tc := range map[string]struct {
		backends int
		path     string
		body     string
		answer   []string
		change   func(*Options)
		asked    int64
		refused  bool // nothing is remembered of it
	}{
		"nobody else":           {1, "/v1/chat/completions", stream + messages, []string{sglangFull, sglangDone}, nil, 1, true},
		"in pieces":             {1, "/v1/chat/completions", stream + messages, []string{sglangFull[:30], sglangFull[30:], sglangDone}, nil, 1, true},
		"all are full":          {2, "/v1/chat/completions", stream + messages, []string{sglangFull, sglangDone}, nil, 2, true},
		"off":                   {2, "/v1/chat/completions", stream + messages, []string{sglangFull, sglangDone}, func(o *Options) { o.Params.Retry503 = 0 }, 1, true},
		"429, as everywhere":    {2, "/v1/chat/completions", stream + messages, []string{of("429"), sglangDone}, nil, 1, true},
		"an error of its own":   {2, "/v1/chat/completions", stream + messages, []string{of("400"), sglangDone}, nil, 1, false},
		"not before the tokens": {2, "/v1/chat/completions", stream + messages, []string{sglangRole, sglangFull, sglangDone}, nil, 1, false},
		"not streamed":          {2, "/v1/chat/completions", whole + messages, []string{sglangFull, sglangDone}, nil, 1, false},
		"another API":           {2, "/v1/messages", stream + messages, []string{sglangFull, sglangDone}, nil, 1, false},
		"an engine that does not": {2, "/v1/chat/completions", stream + messages, []string{sglangFull, sglangDone},
			func(o *Options) { o.RefusesInside = nil }, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, refusesInside, func(o *Options) {
				if tc.change != nil {
					tc.change(o)
				}
			})
			var asked atomic.Int64
			for b := range tc.backends {
				g.add(string(rune('a'+b)), streams(&asked, tc.answer...))
			}
			resp, got := g.post(tc.path, tc.body)
			if resp.StatusCode != 200 || got != strings.Join(tc.answer, "") {
				t.Errorf("%d %q", resp.StatusCode, got)
			}
			if asked.Load() != tc.asked {
				t.Errorf("asked %d times, want %d", asked.Load(), tc.asked)
			}
			if s := g.last(1); s.Code != 200 || s.Refusal != RefusalNone || int64(len(g.ledger.retries)) != tc.asked-1 {
				t.Errorf("recorded %+v, retries %v", s, g.ledger.retries)
			}
			g.idle()
			kept := 0
			for _, b := range g.fleet.Snapshot(g.proxy.clock(), nil) {
				kept += b.IndexEntries
			}
			if (kept == 0) != tc.refused {
				t.Errorf("%d keys are remembered", kept)
			}
			if n := len(g.ledger.tokens); (n == 0) != tc.refused {
				t.Errorf("%d first tokens", n)
			}
		})
	}
}

// noted is a network of pipes as a Splicer that notes what it is told.
type noted struct {
	*pipes
	calls *calls
}

func (n noted) Begin(client, back net.Conn, info ResponseInfo) SplicedResponse {
	return n.calls.Begin(client, back, info)
}

// TestTheFirstEventIsWaitedForALittle: with an engine that may refuse inside, the head
// waits for the first event, 5 ms at most; with another one not at all.
func TestTheFirstEventIsWaitedForALittle(t *testing.T) {
	for name, tc := range map[string]struct {
		inside bool
		event  time.Duration // after the head
		head   time.Duration // when the client has it
		log    string
	}{
		"with the first event": {true, 3 * time.Millisecond, 3 * time.Millisecond, "begin,flushed event,end"},
		"alone":                {true, time.Second, insideTime, "begin,flushed 0,flushed event,end"},
		"of another engine":    {false, 3 * time.Millisecond, 0, "begin,flushed 0,flushed event,end"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *pipes) {
				s := &calls{}
				g := newPipedRig(t, n, func(o *Options) {
					o.Splicer = noted{n, s}
					o.RefusesInside = func(int) bool { return tc.inside }
				})
				g.add("a", func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					flush := http.NewResponseController(w).Flush
					_ = flush()
					time.Sleep(tc.event)
					_, _ = io.WriteString(w, sglangRole)
					_ = flush()
					time.Sleep(time.Second)
				})
				began := time.Now()
				resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != tc.head {
					t.Errorf("the head came after %v, want %v", took, tc.head)
				}
				event := make([]byte, len(sglangRole))
				if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != sglangRole {
					t.Errorf("%q, %v", event, err)
				}
				if took := time.Since(began); took != tc.event {
					t.Errorf("the event came after %v, want %v", took, tc.event)
				}
				if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
					t.Errorf("%q, %v behind it", rest, err)
				}
				_ = resp.Body.Close()
				g.last(1)
				want := strings.ReplaceAll(tc.log, "event", fmt.Sprint(len(sglangRole)))
				if got := strings.Join(s.log, ","); got != want {
					t.Errorf("calls %s, want %s", got, want)
				}
			})
		})
	}
}

// TestABackendThatLeavesWhileItsFirstEventIsAwaited: what came of the answer is
// passed on, and broken off as ever.
func TestABackendThatLeavesWhileItsFirstEventIsAwaited(t *testing.T) {
	g := newRig(t, refusesInside)
	g.addRaw("a", func(c net.Conn) {
		if _, _, err := readHead(c); err == nil {
			_, _ = io.WriteString(c, sglangHead+"94\r\n"+sglangFull[:40])
		}
	})
	resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err == nil || resp.StatusCode != 200 || string(body) != sglangFull[:40] {
		t.Errorf("%d %q, %v", resp.StatusCode, body, err)
	}
	if s := g.last(1); s.Abort != AbortBackend {
		t.Errorf("recorded %+v", s)
	}
	g.idle()
}
