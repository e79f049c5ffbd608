package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// ledger is a Recorder that remembers.
type ledger struct {
	mu        sync.Mutex
	decisions []decide.Decision
	tokens    []string
	retries   []Retry
	holds     []ended
	ends      []Summary
}

// ended is the end of a hold.
type ended struct {
	how    Hold
	waited time.Duration
}

func (l *ledger) Held(how Hold, waited time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, ended{how, waited})
}

func (l *ledger) Retried(why Retry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retries = append(l.retries, why)
}

func (l *ledger) Decided(d decide.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decisions = append(l.decisions, d)
}

func (l *ledger) FirstToken(backend string, _ time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens = append(l.tokens, backend)
}

func (l *ledger) Finished(s Summary) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, s)
}

// ended returns the summaries of the requests that have finished.
func (l *ledger) ended() []Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ends)
}

// rig is a proxy on a loopback port with a real Fleet behind it.
type rig struct {
	tb     testing.TB
	proxy  *Proxy
	fleet  *decide.Fleet
	ledger *ledger
	addr   string // host:port
	client *http.Client
	pipes  *pipes // nil: loopback
	down   bool
}

// newRig starts a proxy on loopback. Backends are added by add.
func newRig(tb testing.TB, change ...func(*Options)) *rig {
	tb.Helper()
	ln, err := Listen(tb.Context(), "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return newRigAt(tb, ln, nil, change...)
}

// newPipedRig starts a proxy in a bubble.
func newPipedRig(tb testing.TB, n *pipes, change ...func(*Options)) *rig {
	tb.Helper()
	change = append([]func(*Options){func(o *Options) { o.Splicer = n }}, change...)
	return newRigAt(tb, n.listen(), n, change...)
}

func newRigAt(tb testing.TB, ln net.Listener, n *pipes, change ...func(*Options)) *rig {
	tb.Helper()
	fp := decide.Default()
	fp.Exploration = 0
	g := &rig{
		tb:     tb,
		fleet:  decide.NewFleet(fp, index.Default(), load.Default(), rand.New(rand.NewPCG(1, 2))),
		ledger: &ledger{},
		pipes:  n,
	}
	o := Options{
		Params:   Default(),
		Router:   g.fleet,
		Hasher:   key.NewHasher([32]byte{}, key.Options{}),
		Recorder: g.ledger,
	}
	if testing.Verbose() {
		o.Log = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	for _, f := range change {
		f(&o)
	}
	p, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	g.proxy, g.addr = p, ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- p.Serve(ln, nil) }()
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 512}
	if n != nil {
		t.DialContext = n.dial
	}
	g.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	tb.Cleanup(func() {
		t.CloseIdleConnections()
		g.shutdown(5 * time.Second)
		if err := <-served; err != nil {
			tb.Errorf("Serve: %v", err)
		}
	})
	return g
}

// shutdown drains, once.
func (g *rig) shutdown(within time.Duration) error {
	if g.down {
		return nil
	}
	g.down = true
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return g.proxy.Shutdown(ctx)
}

// add makes a backend of a handler and returns its slot.
func (g *rig) add(name string, h http.HandlerFunc, models ...string) int {
	g.tb.Helper()
	s := httptest.NewUnstartedServer(h)
	if g.pipes != nil {
		_ = s.Listener.Close()
		s.Listener = g.pipes.listen()
	}
	s.Start()
	g.tb.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return g.addURL(name, s.URL, models...)
}

func (g *rig) addURL(name, url string, models ...string) int {
	g.tb.Helper()
	slot := g.fleet.Add(decide.Spec{Site: "local", Name: name, Models: models})
	if err := g.proxy.AddBackend(slot, Backend{Name: name, URL: url}); err != nil {
		g.tb.Fatal(err)
	}
	return slot
}

// addRaw makes a backend of a function that gets each accepted connection.
func (g *rig) addRaw(name string, serve func(net.Conn)) int {
	g.tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.tb.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c)
			})
		}
	})
	g.tb.Cleanup(func() { _ = ln.Close(); conns.Wait() })
	return g.addURL(name, "http://"+ln.Addr().String())
}

// post sends a body to a path and returns the answer with its body read.
func (g *rig) post(path, body string, header ...string) (*http.Response, string) {
	g.tb.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+g.addr+path, strings.NewReader(body))
	if err != nil {
		g.tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return g.do(req)
}

func (g *rig) do(req *http.Request) (*http.Response, string) {
	g.tb.Helper()
	resp, err := g.client.Do(req)
	if err != nil {
		g.tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		g.tb.Fatalf("read answer: %v", err)
	}
	return resp, string(body)
}

// dial opens a raw connection to the proxy, with a deadline that ends a hang.
func (g *rig) dial() *net.TCPConn {
	g.tb.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.tb.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	g.tb.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// raw sends bytes and returns all that comes back until the proxy closes.
func (g *rig) raw(send string) string {
	g.tb.Helper()
	c := g.dial()
	if _, err := io.WriteString(c, send); err != nil {
		g.tb.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, net.ErrClosed) {
		g.tb.Fatalf("read: %v (after %q)", err, got)
	}
	return string(got)
}

// idle waits until no request runs and checks that every account is at zero.
func (g *rig) idle() {
	g.tb.Helper()
	// All at once: a request of a client that has left may come late.
	testutil.Eventually(g.tb, "no request runs, no body is held and nothing is in flight", func() bool {
		for _, b := range g.fleet.Snapshot(g.proxy.clock(), nil) {
			if b.InFlight != 0 || b.Uncached != 0 {
				return false
			}
		}
		return g.proxy.Active() == 0 && g.proxy.BodyBytes() == 0
	})
}

// last returns the summary of the request that finished last, once n have.
func (g *rig) last(n int) Summary {
	g.tb.Helper()
	var s Summary
	testutil.Eventually(g.tb, fmt.Sprintf("%d requests have finished", n), func() bool {
		g.ledger.mu.Lock()
		defer g.ledger.mu.Unlock()
		if len(g.ledger.ends) < n {
			return false
		}
		s = g.ledger.ends[n-1]
		return true
	})
	return s
}

// echo answers with what it got.
func echo(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s\n", r.Method, r.RequestURI)
	_, _ = io.Copy(&b, r.Body)
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(b.Bytes())
}

// readHead reads a request's head from a raw backend connection.
func readHead(c net.Conn) (*http.Request, *bufio.Reader, error) {
	br := bufio.NewReader(c)
	r, err := http.ReadRequest(br)
	return r, br, err
}

// chat is a small chat body.
func chat(text string) string {
	return `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + text + `"}]}`
}
