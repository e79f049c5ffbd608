package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/decide"
)

// calls is a Splicer that writes down how it is used.
type calls struct {
	NoSplice
	mu     sync.Mutex
	log    []string
	end    error
	client net.Conn
	back   net.Conn
	info   ResponseInfo
	dials  int
}

func (c *calls) note(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf(format, a...))
}

func (c *calls) DialBackend(ctx context.Context, network, addr string, number uint32) (net.Conn, error) {
	c.mu.Lock()
	c.dials++
	c.mu.Unlock()
	return c.NoSplice.DialBackend(ctx, network, addr, number)
}

func (c *calls) Begin(client, back net.Conn, info ResponseInfo) SplicedResponse {
	c.note("begin")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client, c.back, c.info = client, back, info
	return (*called)(c)
}

type called calls

func (c *called) Flushed(n int64) { (*calls)(c).note("flushed %d", n) }
func (c *called) End() error      { (*calls)(c).note("end"); return c.end }
func (c *called) Abort()          { (*calls)(c).note("abort") }

// TestSplicerIsCalledInOrder: Flushed only from the first token on, with what has
// been delivered, and before each read; then End or Abort, once.
func TestSplicerIsCalledInOrder(t *testing.T) {
	for _, tc := range []struct {
		name   string
		end    error
		pieces []string
		want   string
	}{
		{"to its end", nil, []string{"event: response.created\n\n", "event: response.x.delta\n\n", "data: 123\n\n"}, "begin,flushed 50,flushed 61,end"},
		{"damaged", ErrDamaged, []string{"event: response.x.delta\n\n"}, "begin,flushed 25,end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &calls{end: tc.end}
			g := newRig(t, func(o *Options) { o.Splicer = s })
			pieces := make(chan string)
			g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
			resp, err := g.client.Post("http://"+g.addr+"/v1/responses", "application/json", strings.NewReader(`{"input":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range tc.pieces {
				pieces <- p
				if _, err := io.ReadFull(resp.Body, make([]byte, len(p))); err != nil {
					t.Fatal(err)
				}
			}
			close(pieces)
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if (err != nil) != (tc.end != nil) {
				t.Errorf("the client's read ended with %v", err)
			}
			g.idle()
			if got := strings.Join(s.log, ","); got != tc.want {
				t.Errorf("calls %s, want %s", got, tc.want)
			}
			if _, ok := s.client.(*net.TCPConn); !ok {
				t.Errorf("client connection is a %T", s.client)
			}
			if _, ok := s.back.(*net.TCPConn); !ok {
				t.Errorf("backend connection is a %T", s.back)
			}
			if want := (ResponseInfo{ClientHTTP11: true, BackendChunked: true, ClientChunked: true}); !reflect.DeepEqual(s.info, want) {
				t.Errorf("info %+v", s.info)
			}
			if tc.end != nil {
				if got := g.last(1).Abort; got != AbortSplice {
					t.Errorf("abort %s", got)
				}
			}
		})
	}
}

// stopwatch is a Recorder that keeps the last time to a first token.
type stopwatch struct {
	NoRecorder
	ttft time.Duration
}

func (s *stopwatch) FirstToken(_ string, ttft time.Duration) { s.ttft = ttft }

// TestTimeToAFirstTokenInTheKernel is taken from when it passed, not from when the agent
// heard of it; what cannot be, because it is older than its request, is not believed.
func TestTimeToAFirstTokenInTheKernel(t *testing.T) {
	const began, now = 10 * time.Second, 15 * time.Second
	for ago, want := range map[time.Duration]time.Duration{
		0:                    5 * time.Second,
		2 * time.Second:      3 * time.Second,
		5 * time.Second:      0,
		5*time.Second + 1:    5 * time.Second,
		24 * 365 * time.Hour: 5 * time.Second,
	} {
		s := &stopwatch{}
		p := &Proxy{recorder: s, clock: func() decide.Instant { return now }}
		c := &copying{x: &exchange{p: p, began: began}, a: &attempt{backend: &backend{name: "a"}}}
		if c.firstToken(ago); s.ttft != want || !c.token.Load() {
			t.Errorf("%v ago: %v after the request, want %v", ago, s.ttft, want)
		}
	}
}

// taking is a Splicer that takes the first token of every stream that it may, before
// anything of the body comes to the agent.
type taking struct{ *calls }

func (s taking) Begin(client, back net.Conn, info ResponseInfo) SplicedResponse {
	_ = s.calls.Begin(client, back, info)
	return taken{(*called)(s.calls), info.FirstToken}
}

type taken struct {
	*called
	told func(time.Duration)
}

func (r taken) Flushed(n int64) {
	r.called.Flushed(n)
	if n == 0 {
		r.told(time.Hour)
	}
}

// TestFirstTokenInTheKernel: a head that came alone is offered where the kernel can
// tell the first token; what it tells of counts once, while the stream goes on.
func TestFirstTokenInTheKernel(t *testing.T) {
	const done = "data: [DONE]\n\n"
	for name, tc := range map[string]struct {
		path, first string
		alone       bool // the head
		takes       bool
		want        string
	}{
		"taken":                   {"/v1/chat/completions", done, true, true, "begin,flushed 0,flushed 14,end"},
		"not taken":               {"/v1/chat/completions", done, true, false, "begin,flushed 0,flushed 14,end"},
		"comment first":           {"/v1/completions", ": ping\n\n", true, false, "begin,flushed 0,flushed 22,end"},
		"together with the head":  {"/v1/messages", done, false, false, "begin,flushed 14,end"},
		"a stream of the agent's": {"/v1/responses", "event: response.x.delta\n\n", true, false, "begin,flushed 25,end"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &calls{}
			g := newRig(t, func(o *Options) {
				o.Splicer = s
				if tc.takes {
					o.Splicer = taking{s}
				}
			})
			goOn := make(chan bool)
			slot := g.addRaw("a", func(c net.Conn) {
				if _, _, err := readHead(c); err != nil {
					return
				}
				head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
				if tc.alone {
					_, _ = io.WriteString(c, head)
					<-goOn
					head = ""
				}
				_, _ = fmt.Fprintf(c, "%s%x\r\n%s\r\n", head, len(tc.first), tc.first)
				<-goOn
				if strings.HasPrefix(tc.first, ":") {
					_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n", len(done), done)
					<-goOn
				}
				_, _ = io.WriteString(c, "0\r\n\r\n")
			})
			resp, err := g.client.Post("http://"+g.addr+tc.path, "application/json", strings.NewReader(chat("x")))
			if err != nil {
				t.Fatal(err)
			}
			if tc.alone {
				if tc.takes {
					testutil.Eventually(t, "the reservation is released", func() bool {
						return g.fleet.Snapshot(g.proxy.clock(), nil)[slot].Uncached == 0
					})
				}
				goOn <- true
			}
			_, _ = io.ReadFull(resp.Body, make([]byte, len(tc.first)))
			goOn <- true
			if strings.HasPrefix(tc.first, ":") {
				_, _ = io.ReadFull(resp.Body, make([]byte, len(done)))
				goOn <- true
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Error(err)
			}
			_ = resp.Body.Close()
			g.last(1)
			g.idle()
			if got := strings.Join(s.log, ","); got != tc.want {
				t.Errorf("calls %s, want %s", got, tc.want)
			}
			if n := len(g.ledger.tokens); n != 1 {
				t.Errorf("%d first tokens were recorded, want 1", n)
			}
		})
	}
}

// telling is a Splicer that takes the event with the usage and tells how its message
// ended, from a goroutine of its own, before the end of the body is read.
type telling struct {
	*calls
	end string
}

func (s telling) Begin(client, back net.Conn, info ResponseInfo) SplicedResponse {
	_ = s.calls.Begin(client, back, info)
	return told{(*called)(s.calls), s.end, info.Usage}
}

type told struct {
	*called
	end  string
	tell func([]byte)
}

func (r told) End() error {
	if r.tell != nil {
		r.note("told")
		done := make(chan bool)
		go func() {
			defer close(done)
			b := []byte(r.end)
			r.tell(b)
			clear(b) // not to be kept
		}()
		<-done
	}
	return r.called.End()
}

func (r told) note(s string) { (*calls)(r.called).note("%s", s) }

// TestUsageInTheKernel: where the client asks for the usage the accounts have it, though
// the message that held it did not come to the agent.
func TestUsageInTheKernel(t *testing.T) {
	const (
		chatEnd  = "ry\"}}]}\n\n\r\n52\r\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":50,\"prompt_tokens_details\":{\"cached_tokens\":40}}}\n\n\r\n"
		doneEnd  = chatEnd + "e\r\ndata: [DONE]\n\n\r\n"
		start    = "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":40,\"output_tokens\":1}}}\n\n"
		delta    = "event: message_delta\ndata: {\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n"
		tokenSSE = "data: {\"choices\":[{}]}\n\n"
	)
	for name, tc := range map[string]struct {
		path, options, relayed, end string
		want                        int64
	}{
		"chat":               {"/v1/chat/completions", `"stream_options":{"include_usage":true},`, tokenSSE, chatEnd, 50},
		"with the mark":      {"/v1/completions", `"stream_options":{"include_usage":true},`, tokenSSE, doneEnd, 50},
		"messages":           {"/v1/messages", "", start, "49\r\n" + delta + "\r\n", 50},
		"all of messages":    {"/v1/messages", "", ": hi\n\n", "7a\r\n" + start + "\r\n49\r\n" + delta + "\r\n", 50},
		"no usage after all": {"/v1/chat/completions", `"stream_options":{"include_usage":true},`, tokenSSE, "1c\r\ndata: {\"timings\":{\"n\":1}}\n\n\r\n", 0},
		"not asked":          {"/v1/chat/completions", "", tokenSSE, chatEnd, 0},
		"in every event":     {"/v1/chat/completions", `"stream_options":{"include_usage":true,"continuous_usage_stats":true},`, tokenSSE, chatEnd, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &calls{}
			g := newRig(t, func(o *Options) { o.Splicer = telling{s, tc.end} })
			pieces := make(chan string, 1)
			g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
			pieces <- tc.relayed
			close(pieces)
			resp, err := g.client.Post("http://"+g.addr+tc.path, "application/json",
				strings.NewReader("{"+tc.options+chat("x")[1:]))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Error(err)
			}
			_ = resp.Body.Close()
			g.last(1)
			g.idle()
			if got := g.fleet.Snapshot(0, nil)[0].UsageTokens; got != tc.want {
				t.Errorf("%d prompt tokens were reported, want %d; %s", got, tc.want, strings.Join(s.log, ","))
			}
		})
	}
}
