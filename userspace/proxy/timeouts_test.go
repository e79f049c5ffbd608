package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// TestIdleTimeout: an answer that stands still is given up, pings keep it alive (E5).
func TestIdleTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		const idle, pings = 200 * time.Millisecond, 30
		g := newPipedRig(t, n, func(o *Options) { o.Params.Timeouts.Idle = idle })
		pieces := make(chan string)
		g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
		began := time.Now()
		resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range pings {
				time.Sleep(idle - time.Millisecond)
				pieces <- ": ping\n\n"
			}
		}()
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil {
			t.Error("the client took the broken answer for a whole one")
		}
		if n := strings.Count(string(got), "ping"); n != pings {
			t.Errorf("%d pings came through, want %d", n, pings)
		}
		if took, want := time.Since(began), pings*(idle-time.Millisecond)+idle; took != want {
			t.Errorf("given up after %s, want %s", took, want)
		}
		g.idle()
		if s := g.last(1); s.Abort != AbortBackend {
			t.Errorf("recorded %+v", s)
		}
	})
}

// TestIdleTimeoutCountsEachWaitAlone: an answer that was silent for a while and then
// waited for its client for a while has used up neither time.
func TestIdleTimeoutCountsEachWaitAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		const idle = time.Second
		g := newPipedRig(t, n, func(o *Options) { o.Params.Timeouts.Idle = idle })
		pieces := make(chan string)
		g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
		resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
		if err != nil {
			t.Fatal(err)
		}
		const first, second = "data: 1\n\n", "data: 2\n\n"
		go func() {
			defer close(pieces)
			pieces <- first
			time.Sleep(idle * 3 / 4)
			pieces <- second
		}()
		if _, err := io.ReadFull(resp.Body, make([]byte, len(first))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(idle * 3 / 2) // a pipe holds nothing: the agent's write waits for this client
		rest, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(rest) != second || err != nil {
			t.Errorf("got %q, %v", rest, err)
		}
		g.idle()
		if s := g.last(1); s.Abort != AbortNone {
			t.Errorf("recorded %+v", s)
		}
	})
}

// TestHeadTimeout: a head that does not come in time is 504, and one that does ends
// the limit: the answer may take longer than its head.
func TestHeadTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		const most = 500 * time.Millisecond
		g := newPipedRig(t, n, func(o *Options) { o.Params.Timeouts.ResponseHead = most })
		waits := make(chan time.Duration, 2)
		waits <- most + time.Millisecond
		waits <- most - time.Millisecond
		g.add("a", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-time.After(<-waits):
			case <-r.Context().Done():
				return
			}
			_, _ = io.WriteString(w, "1")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * most)
			_, _ = io.WriteString(w, "2")
		})
		began := time.Now()
		if resp, _ := g.post("/v1/chat/completions", chat("x")); resp.StatusCode != 504 || time.Since(began) != most {
			t.Errorf("%d after %s, want 504 after %s", resp.StatusCode, time.Since(began), most)
		}
		if resp, body := g.post("/v1/chat/completions", chat("x")); resp.StatusCode != 200 || body != "12" {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
		g.idle()
	})
}

// moved is a SplicedResponse of which the kernel moves something for a while.
type moved struct {
	notSpliced
	looks atomic.Int64
}

func (m *moved) Redirected() int64 { return min(m.looks.Add(1), 5) }

type movedSplicer struct {
	*pipes
	m moved
}

func (s *movedSplicer) Begin(net.Conn, net.Conn, ResponseInfo) SplicedResponse { return &s.m }

// TestIdleTimeoutOfASplicedStream: what the kernel moves counts as progress.
func TestIdleTimeoutOfASplicedStream(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		s := &movedSplicer{pipes: n}
		g := newPipedRig(t, n, func(o *Options) { o.Splicer, o.Params.Timeouts.Idle = s, 20*time.Millisecond })
		pieces := make(chan string, 1)
		g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
		pieces <- "data: 1\n\n"
		resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("the client took the broken answer for a whole one")
		}
		_ = resp.Body.Close()
		if n := s.m.looks.Load(); n != 6 {
			t.Errorf("the stream was looked at %d times, want 5 with progress and one without", n)
		}
		g.idle()
	})
}

// deadlines is a ResponseWriter that counts them.
type deadlines struct {
	http.ResponseWriter
	set int
}

func (d *deadlines) SetReadDeadline(time.Time) error { d.set++; return nil }

// TestBodyIsNotReadAfterItsRequest: a backend that answers before it has the whole
// body may leave the transport reading when the handler returns. By then the
// connection, and its deadline, is the next request's.
func TestBodyIsNotReadAfterItsRequest(t *testing.T) {
	p, err := New(Options{Params: Default(), Router: newRig(t).fleet, Hasher: key.NewHasher([32]byte{}, key.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	d := &deadlines{}
	x := &exchange{p: p, rc: http.NewResponseController(d), params: p.params.Load(), prompt: new(key.Prompt), served: true}
	x.stream = &streamedBody{src: &timedBody{x: x, src: strings.NewReader("body")}, left: 100}
	if n, err := x.stream.Read(make([]byte, 2)); n != 2 || err != nil || d.set != 1 {
		t.Fatalf("%d, %v, %d deadlines", n, err, d.set)
	}
	x.finish()
	if n, err := x.stream.Read(make([]byte, 2)); n != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("after the end: %d, %v", n, err)
	}
	x.stream.src.done()
	if d.set != 1 {
		t.Errorf("%d deadlines after the end", d.set-1)
	}
}

// TestSlowBodyLeavesNoDeadline: the limit on a body must not end a long answer,
// nor the next request on the connection.
func TestSlowBodyLeavesNoDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		const limit = 100 * time.Millisecond
		g := newPipedRig(t, n, func(o *Options) { o.Params.Timeouts.Body = limit })
		g.add("a", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			select {
			case <-time.After(3 * limit):
			case <-r.Context().Done():
				t.Error("the request was broken off")
			}
			_, _ = io.WriteString(w, "ok")
		})
		for _, kind := range []string{"application/json", "audio/wav"} {
			for range 2 {
				if resp, body := g.post("/x", "{}", "Content-Type", kind); resp.StatusCode != 200 || body != "ok" {
					t.Errorf("%s: %d %q", kind, resp.StatusCode, body)
				}
			}
		}
	})
}

// TestSlowBackendIsNotASlowClient: while a backend does not take a body that is passed
// on as it comes, nobody waits for the client.
func TestSlowBackendIsNotASlowClient(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		const limit, stall = time.Second, time.Hour
		g := newPipedRig(t, n, func(o *Options) { o.Params.Timeouts.Body = limit })
		g.add("a", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(stall)
			got, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				t.Errorf("%d bytes arrived, then %v", got, err)
			}
		})
		if resp, body := g.post("/upload", strings.Repeat("x", 1<<20), "Content-Type", "audio/wav"); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		g.idle()
	})
}
