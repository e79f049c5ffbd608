package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/decide"
)

// TestClientAbortClosesUpstream: however a client goes away, and whatever the
// request is waiting for, the backend's connection is closed (A1, A4, A5) and
// every count is given back (A2).
func TestClientAbortClosesUpstream(t *testing.T) {
	streamed := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tc := range []struct {
		name   string
		answer string // of the backend, before it waits
		flood  bool   // the backend then sends without end, the client does not read
		reset  bool   // the client resets instead of closing
	}{
		{"before the head", "", false, false},
		{"before the head, reset", "", false, true},
		{"not streamed, before the body", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", false, false},
		{"streamed, before the first token", streamed, false, false},
		{"streamed, after the first token", streamed + "9\r\ndata: 1\n\n\r\n", false, false},
		{"streamed, after the first token, reset", streamed + "9\r\ndata: 1\n\n\r\n", false, true},
		{"while the client does not read", streamed, true, false},
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/messages", "/unknown"} {
			t.Run(tc.name+path, func(t *testing.T) {
				g := newRig(t)
				arrived, closed := make(chan struct{}), make(chan struct{})
				var flooded atomic.Int64 // pieces
				g.addRaw("a", func(c net.Conn) {
					r, br, err := readHead(c)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(c, tc.answer)
					close(arrived)
					if tc.flood {
						piece := fmt.Sprintf("%x\r\n%s\r\n", 65536, strings.Repeat("x", 65536))
						for {
							if _, err := io.WriteString(c, piece); err != nil {
								break
							}
							flooded.Add(1)
						}
					} else {
						_, _ = br.ReadByte() // until the agent closes
					}
					close(closed)
				})
				c := g.dial()
				body := chat("x")
				_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
				<-arrived
				if strings.Contains(tc.answer, "chunked") && !tc.flood { // other heads wait for the body
					if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
						t.Fatal(err)
					}
				}
				if tc.flood { // until the agent's write hangs
					testutil.Eventually(t, "the agent reads no more", func() bool {
						before := flooded.Load()
						time.Sleep(50 * time.Millisecond)
						return before > 0 && before == flooded.Load()
					})
				}
				if tc.reset {
					_ = c.SetLinger(0)
				}
				_ = c.Close()
				select {
				case <-closed:
				case <-time.After(20 * time.Second):
					t.Fatal("the backend's connection stays open")
				}
				g.idle()
				if s := g.last(1); s.Abort != AbortClient {
					t.Errorf("recorded %+v", s)
				}
			})
		}
	}
}

// TestClientAbortWhileItSends: a body that is passed on as it comes ends with its client.
func TestClientAbortWhileItSends(t *testing.T) {
	g := newRig(t)
	began, ended := make(chan struct{}), make(chan error, 1)
	g.add("a", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 5))
		close(began)
		_, err := io.Copy(io.Discard, r.Body)
		ended <- err
	})
	c := g.dial()
	_, _ = io.WriteString(c, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: audio/wav\r\nContent-Length: 1000\r\n\r\nhello")
	<-began
	_ = c.Close()
	if err := <-ended; err == nil {
		t.Error("the backend took the broken body for a whole one")
	}
	g.idle()
	if s := g.last(1); s.Abort != AbortClient {
		t.Errorf("recorded %+v", s)
	}
}

// TestBackendDiesMidBody: the client sees that the answer is not whole, whatever
// its framing.
func TestBackendDiesMidBody(t *testing.T) {
	for _, tc := range []struct{ name, proto, answer string }{
		{"length", "HTTP/1.1", "Content-Length: 100\r\n\r\nabc"},
		{"length, HTTP/1.0 client", "HTTP/1.0", "Content-Length: 100\r\n\r\nabc"},
		{"chunks", "HTTP/1.1", "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"},
		{"chunks, HTTP/1.0 client", "HTTP/1.0", "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"},
		{"broken chunk size", "HTTP/1.1", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t)
			read := make(chan struct{})
			g.addRaw("a", func(c net.Conn) {
				r, _, err := readHead(c)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+tc.answer)
				<-read
			})
			c := g.dial()
			body := chat("x")
			_, _ = fmt.Fprintf(c, "POST /v1/chat/completions %s\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", tc.proto, len(body), body)
			if strings.Contains(tc.answer, "chunked") { // flushed as it comes
				_, _ = io.ReadFull(c, make([]byte, 12))
			}
			close(read)
			br := bufio.NewReader(c)
			var err error
			if strings.Contains(tc.answer, "chunked") {
				_, err = io.ReadAll(br)
				if tc.proto == "HTTP/1.0" {
					if !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("the end of the connection looks like the end of the answer: %v", err)
					}
				} else if err == nil {
					rest, _ := io.ReadAll(br)
					if strings.HasSuffix(string(rest), "0\r\n\r\n") {
						t.Error("a terminator was written over a broken answer")
					}
				}
			} else if resp, headErr := http.ReadResponse(br, nil); headErr == nil {
				_, err = io.ReadAll(resp.Body)
				if err == nil {
					t.Error("the client took the broken answer for a whole one")
				}
			}
			g.idle()
			if s := g.last(1); s.Abort != AbortBackend || s.Code != 200 {
				t.Errorf("recorded %+v", s)
			}
		})
	}
}

// TestHalfReadConnectionIsNotReused: after an abort the next request gets its own
// answer, never the rest of another's.
func TestHalfReadConnectionIsNotReused(t *testing.T) {
	g := newRig(t)
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Length", fmt.Sprint(1<<20+len(b)))
		_, _ = w.Write(make([]byte, 1<<20))
		_, _ = w.Write(b)
	})
	for i := range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		mark := fmt.Sprintf(`{"mark":%d}`, i)
		req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+"/v1/chat/completions", strings.NewReader(mark))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := g.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_, _ = io.ReadFull(resp.Body, make([]byte, 1000))
		} else if body, err := io.ReadAll(resp.Body); err != nil || string(body[1<<20:]) != mark {
			t.Fatalf("request %d got another's answer (error %v)", i, err)
		}
		cancel()
		_ = resp.Body.Close()
	}
	g.idle()
}

// TestChaos: clients that leave, backends that fail in every way, all at once.
// No answer is another's, and in the end every account is at zero (A7, A14, A19).
func TestChaos(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Params.MaxBodyBytes = 1 << 20 })
	const workers, each = 16, 25
	for b := range 3 {
		g.add(fmt.Sprint("b", b), func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			mark := r.Header.Get("X-Mark")
			switch rand.IntN(12) {
			case 0:
				w.WriteHeader(500)
				return
			case 1:
				w.WriteHeader(429)
				return
			case 2:
				panic(http.ErrAbortHandler)
			case 3:
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "data: "+mark)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			case 4:
				_, _ = fmt.Fprintf(w, "%s %d", mark, len(body))
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			for range 5 {
				_, _ = fmt.Fprintf(w, "data: %s %d\n\n", mark, len(body))
				_ = http.NewResponseController(w).Flush()
			}
		})
	}
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(worker), 7))
			for i := range each {
				mark := fmt.Sprintf("m%d-%d.", worker, i)
				ctx, cancel := context.WithCancel(context.Background())
				body := chat(strings.Repeat("y", rnd.IntN(30000)))
				path := []string{"/v1/chat/completions", "/v1/responses", "/v1/messages", "/x"}[rnd.IntN(4)]
				req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+path, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				req.Header.Set("X-Mark", mark)
				req.Header.Set("Content-Type", []string{"application/json", "x/y"}[rnd.IntN(2)])
				if rnd.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(2000))*time.Microsecond, cancel)
				}
				resp, err := g.client.Do(req)
				if err == nil {
					got, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode == 200 && len(got) > 0 && !strings.Contains(string(got), mark) {
						t.Errorf("got another's answer: %q, error %v", got, err)
					}
					if resp.StatusCode == 200 && err == nil && resp.Header.Get("Content-Type") == "text/event-stream" && strings.Count(string(got), fmt.Sprintf("data: %s %d\n\n", mark, len(body))) != 5 {
						t.Errorf("a whole answer that is not: %q", got)
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
	g.idle()
	// A request that was cancelled at once may never have been sent.
	if n := len(g.ledger.ended()); n > workers*each || n < workers*each/2 {
		t.Errorf("%d ends of %d requests", n, workers*each)
	}
}

// faulty is a Pinner that panics once the answer is there.
type faulty struct{ NoPin }

func (faulty) Readable(PinRequest) bool { return true }
func (faulty) Response(string, PinRequest, int, http.Header) (Rewriter, Refusal) {
	panic("a fault")
}

// fragile is a Rewriter that panics: in the copy loop, or at the body's end.
type fragile struct{ atEnd bool }

func (f fragile) Readable(PinRequest) bool     { return true }
func (f fragile) Request(PinRequest) PinAnswer { return PinAnswer{Slot: -1} }
func (f fragile) Response(string, PinRequest, int, http.Header) (Rewriter, Refusal) {
	return f, RefusalNone
}
func (f fragile) Append(dst, p []byte) []byte {
	if !f.atEnd {
		panic("a fault")
	}
	return append(dst, p...)
}
func (f fragile) Finish([]byte) []byte { panic("a fault") }

// TestPanicAbortsTheSplice: the kernel is told when the copy loop does not come to
// its end, or it would go on writing to a client whose handler is gone.
func TestPanicAbortsTheSplice(t *testing.T) {
	for name, pinner := range map[string]fragile{"in the loop": {}, "at the end": {atEnd: true}} {
		t.Run(name, func(t *testing.T) {
			s := &calls{}
			g := newRig(t, func(o *Options) { o.Pinner, o.Splicer = pinner, s })
			g.add("a", echo)
			resp, err := g.client.Post("http://"+g.addr+"/v1/responses", "application/json", strings.NewReader(`{"input":"x"}`))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if err == nil {
				t.Error("the client took what it got for a whole answer")
			}
			g.idle()
			if got := g.last(1).Abort; got != AbortHandler {
				t.Errorf("abort %s, want handler", got)
			}
			if got := strings.Join(s.log, ","); got != "begin,abort" {
				t.Errorf("calls %s, want begin,abort", got)
			}
		})
	}
}

// TestPanicGivesEverythingBack: a fault of ours costs one request and nothing else.
func TestPanicGivesEverythingBack(t *testing.T) {
	var log strings.Builder
	g := newRig(t, func(o *Options) { o.Pinner, o.Log = faulty{}, slog.New(slog.NewTextHandler(&log, nil)) })
	g.add("a", echo)
	resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
	if err == nil {
		_ = resp.Body.Close()
		t.Errorf("the client got an answer: %d", resp.StatusCode)
	}
	g.idle()
	if s := g.last(1); s.Abort != AbortHandler {
		t.Errorf("recorded %+v", s)
	}
	// Whoever sees the count wants to know where it was.
	if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "faulty") {
		t.Errorf("logged %q", text)
	}
}

// TestDrain: no new connection, streams finish, then nothing is left (E17).
func TestDrain(t *testing.T) {
	g := newRig(t)
	pieces := make(chan string)
	g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
	resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.shutdown(20 * time.Second) }()
	testutil.Eventually(t, "new connections are refused", func() bool {
		c, err := net.Dial("tcp", g.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	for range 3 {
		pieces <- "data: x\n\n"
	}
	close(pieces)
	if body, err := io.ReadAll(resp.Body); err != nil || strings.Count(string(body), "data") != 3 {
		t.Errorf("the stream ended with %q, error %v", body, err)
	}
	_ = resp.Body.Close()
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	g.idle()
}

// TestDrainTimeIsOver: what does not finish is aborted, and seen to be.
func TestDrainTimeIsOver(t *testing.T) {
	g := newRig(t)
	pieces := make(chan string)
	gone := make(chan struct{}, 2)
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		defer func() { gone <- struct{}{} }()
		if r.URL.Path == "/wait" {
			<-r.Context().Done()
			return
		}
		events(w, r, pieces)
	})
	resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
	if err != nil {
		t.Fatal(err)
	}
	code := make(chan int, 1)
	go func() {
		resp, err := g.client.Get("http://" + g.addr + "/wait")
		if err != nil {
			code <- 0
			return
		}
		_ = resp.Body.Close()
		code <- resp.StatusCode
	}()
	testutil.Eventually(t, "two requests run", func() bool { return g.fleet.Snapshot(0, nil)[0].InFlight == 2 })
	if err := g.shutdown(20 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the aborted stream looks whole")
	}
	_ = resp.Body.Close()
	if c := <-code; c != 503 {
		t.Errorf("the request without an answer got %d, want 503", c)
	}
	<-gone
	<-gone
	g.idle()
	for _, s := range g.ledger.ended() {
		if s.Abort != AbortDrain && s.Refusal != RefusalDrain {
			t.Errorf("recorded %+v", s)
		}
	}
}

// specNamed is a backend that may serve any model.
func specNamed(name string) decide.Spec { return decide.Spec{Site: "local", Name: name} }

// TestTLS: the listener speaks TLS and HTTP/1.1, backends may too.
func TestTLS(t *testing.T) {
	back := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+r.Proto+" "+r.Header.Get("X-Forwarded-Proto")+"\n\n")
	}))
	defer back.Close()
	s := &calls{}
	g := newRig(t, func(o *Options) { o.Splicer = s })
	slot := g.fleet.Add(specNamed("tls"))
	roots := back.Client().Transport.(*http.Transport).TLSClientConfig
	if err := g.proxy.AddBackend(slot, Backend{Name: "tls", URL: back.URL, TLS: roots}); err != nil {
		t.Fatal(err)
	}
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- g.proxy.Serve(ln, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &back.TLS.Certificates[0], nil
		}})
	}()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: roots.Clone(), ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	resp, err := client.Post("https://"+ln.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.Proto != "HTTP/1.1" || string(body) != "data: HTTP/1.1 https\n\n" {
		t.Errorf("%s %q, error %v", resp.Proto, body, err)
	}
	g.idle()
	if !s.info.ClientTLS {
		t.Errorf("splice info %+v", s.info)
	}
	if _, ok := s.back.(*tls.Conn); !ok {
		t.Errorf("backend connection is a %T", s.back)
	}
	if s.dials != 0 {
		t.Error("a connection that cannot be spliced was announced: its server's socket is disturbed for nothing")
	}
	client.CloseIdleConnections()
	_ = g.shutdown(5 * time.Second)
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
