package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
)

// refusing returns the address of a port where nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// TestRetryMovesToTheNextChoice: a backend that cannot be reached costs one
// retry, the count moves along (A8), and the backend is left alone for a while.
func TestRetryMovesToTheNextChoice(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/upload"} {
		g := newRig(t)
		g.addURL("dead", "http://"+refusing(t))
		var got atomic.Int64
		g.add("alive", func(w http.ResponseWriter, r *http.Request) { got.Add(1); echo(w, r) })
		retried := 0
		for i := range 20 {
			resp, body := g.post(path, chat("x"), "Content-Type", "text/plain")
			if resp.StatusCode != 200 || !strings.HasSuffix(body, chat("x")) {
				t.Fatalf("%s: %d %q", path, resp.StatusCode, body)
			}
			if s := g.last(i + 1); s.Retry == RetryConnect {
				retried++
			}
		}
		if got.Load() != 20 || retried == 0 {
			t.Errorf("%s: %d arrived, %d were retried", path, got.Load(), retried)
		}
		g.idle()
	}
}

// TestNoRetryOnceSent: a request of which a byte was written is never sent again,
// whatever its headers say. The engine may have begun to work on it.
func TestNoRetryOnceSent(t *testing.T) {
	g := newRig(t)
	var got atomic.Int64
	hangUp := func(c net.Conn) {
		if r, _, err := readHead(c); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			got.Add(1)
		}
	}
	g.addRaw("a", hangUp)
	g.addRaw("b", hangUp)
	resp, _ := g.post("/v1/chat/completions", chat("x"), "Idempotency-Key", "k")
	if resp.StatusCode != 502 || got.Load() != 1 {
		t.Errorf("status %d, sent %d times", resp.StatusCode, got.Load())
	}
	if s := g.last(1); s.Retry != RetryNone || s.Refusal != RefusalProtocol {
		t.Errorf("recorded %+v", s)
	}
	g.idle()
}

// serveN answers n requests on a connection and closes it.
func serveN(n int, answer string, served *atomic.Int64) func(net.Conn) {
	return func(c net.Conn) {
		br := bufio.NewReader(c)
		for range n {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			served.Add(1)
			_, _ = io.WriteString(c, answer)
		}
	}
}

// TestKeptConnectionClosedByBackend: an idle connection that the backend closed
// never costs a request (E9): it is sent on another one, exactly once.
func TestKeptConnectionClosedByBackend(t *testing.T) {
	g := newRig(t)
	var served atomic.Int64
	g.addRaw("a", serveN(1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", &served))
	for range 200 {
		if resp, body := g.post("/v1/chat/completions", chat("x")); resp.StatusCode != 200 {
			// The one case that cannot be told: written into a connection that was
			// being closed. It must be refused, not sent twice.
			if resp.StatusCode != 502 {
				t.Fatalf("%d %q", resp.StatusCode, body)
			}
			served.Add(1)
		}
	}
	if served.Load() != 200 {
		t.Errorf("200 requests were served %d times", served.Load())
	}
	g.idle()
}

// staleConn takes no more writes once it has brought an answer, as a connection
// does that was reset while it was idle.
type staleConn struct {
	net.Conn
	answered atomic.Bool
}

func (c *staleConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.answered.Store(true)
	return n, err
}

func (c *staleConn) Write(p []byte) (int, error) {
	if c.answered.Load() {
		_ = c.Close()
		return 0, &net.OpError{Op: "write", Err: io.ErrClosedPipe}
	}
	return c.Conn.Write(p)
}

// staleDialer makes connections that serve one request and then fail.
type staleDialer struct {
	NoSplice
	dials atomic.Int64
}

func (d *staleDialer) DialBackend(ctx context.Context, network, addr string, n uint32) (net.Conn, error) {
	d.dials.Add(1)
	c, err := d.NoSplice.DialBackend(ctx, network, addr, n)
	if err != nil {
		return nil, err
	}
	return &staleConn{Conn: c}, nil
}

// TestStaleConnectionIsTriedAgain: nothing was written, so the same backend is
// asked again on a new connection; it keeps the prompt's cache and its good name.
func TestStaleConnectionIsTriedAgain(t *testing.T) {
	d := &staleDialer{}
	g := newRig(t, func(o *Options) { o.Splicer = d })
	var got atomic.Int64
	slot := g.add("a", func(w http.ResponseWriter, r *http.Request) { got.Add(1); echo(w, r) })
	for i := range 5 {
		if resp, text := g.post("/v1/chat/completions", chat("x")); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
		want := RetryStale
		if i == 0 {
			want = RetryNone
		}
		if s := g.last(i + 1); s.Retry != want {
			t.Errorf("request %d: %+v, want retry %s", i, s, want)
		}
	}
	if got.Load() != 5 || d.dials.Load() != 5 {
		t.Errorf("%d requests arrived on %d connections, want 5 on 5", got.Load(), d.dials.Load())
	}
	if s := g.fleet.Snapshot(g.proxy.clock(), nil); !s[slot].Admitted {
		t.Error("the backend was ejected for a stale connection")
	}
	g.idle()
}

// deadDialer finds nobody at one address.
type deadDialer struct {
	NoSplice
	dead atomic.Value // the address
}

func (d *deadDialer) DialBackend(ctx context.Context, network, addr string, n uint32) (net.Conn, error) {
	if d.dead.Load() == addr {
		return nil, &net.OpError{Op: "dial", Err: io.ErrClosedPipe}
	}
	return d.NoSplice.DialBackend(ctx, network, addr, n)
}

// dyingDialer lets a backend die: its kept connections are stale, and nobody
// listens for a new one.
type dyingDialer struct {
	deadDialer
}

func (d *dyingDialer) DialBackend(ctx context.Context, network, addr string, n uint32) (net.Conn, error) {
	c, err := d.deadDialer.DialBackend(ctx, network, addr, n)
	if err != nil {
		return nil, err
	}
	return &staleConn{Conn: c}, nil
}

// TestStaleConnectionsOfTwoBackends: a backend died with a connection in our pool,
// and the pool of the next choice is stale as well. Nothing was written anywhere, so
// the request must arrive.
func TestStaleConnectionsOfTwoBackends(t *testing.T) {
	d := &dyingDialer{}
	g := newRig(t, func(o *Options) { o.Splicer = d })
	var got [2]atomic.Int64
	for i, name := range []string{"a", "b"} {
		g.add(name, func(w http.ResponseWriter, r *http.Request) { got[i].Add(1); echo(w, r) })
	}
	for got[0].Load() == 0 || got[1].Load() == 0 { // both pools hold a connection
		g.post("/v1/chat/completions", chat("x"))
	}
	warm := [2]int64{got[0].Load(), got[1].Load()}
	d.dead.Store((*g.proxy.backends.Load())[0].base.Host)
	for got[1].Load() < warm[1]+5 {
		if resp, text := g.post("/v1/chat/completions", chat("x")); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
	}
	if got[0].Load() != warm[0] {
		t.Error("a request reached the dead backend")
	}
	g.idle()
}

// TestDeathUnderAGet: a backend dies with a GET on its kept connection. The GET may be
// sent twice, and the second time nobody is there to connect to: another backend
// is asked, as if there had been no kept connection, and the dead one is ejected.
func TestDeathUnderAGet(t *testing.T) {
	d := &deadDialer{}
	g := newRig(t, func(o *Options) { o.Splicer, o.Params.Timeouts.ResponseHead = d, time.Minute })
	host := make(chan string, 1)
	slot := g.addRaw("dying", func(c net.Conn) {
		br := bufio.NewReader(c)
		if _, err := http.ReadRequest(br); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if _, err := http.ReadRequest(br); err == nil {
				d.dead.Store(<-host)
			}
		}
	})
	host <- g.proxy.backend(slot).base.Host
	get := func() *http.Response {
		req, err := http.NewRequest(http.MethodGet, "http://"+g.addr+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, _ := g.do(req)
		return resp
	}
	if resp := get(); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	g.add("alive", echo)
	for n := 2; ; n++ {
		if resp := get(); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		if s := g.last(n); s.Retry != RetryNone {
			if s.Backend != "alive" || s.Retry != RetryConnect {
				t.Errorf("recorded %+v", s)
			}
			break
		}
	}
	if want := []Retry{RetryStale, RetryConnect}; !slices.Equal(g.ledger.retries, want) {
		t.Errorf("retries %v, want %v", g.ledger.retries, want)
	}
	if s := g.fleet.Snapshot(g.proxy.clock(), nil); s[slot].Admitted {
		t.Error("the dead backend is still admitted")
	}
	g.idle()
}

// countingDialer counts the writes on its connections.
type countingDialer struct {
	NoSplice
	writes atomic.Int64
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func (d *countingDialer) DialBackend(ctx context.Context, network, addr string, n uint32) (net.Conn, error) {
	c, err := d.NoSplice.DialBackend(ctx, network, addr, n)
	return countingConn{c, &d.writes}, err
}

// embedding is a connection as a Splicer may have it.
type embedding struct {
	*net.TCPConn
	seen *atomic.Int64
}

func (c embedding) Write(p []byte) (int, error) {
	c.seen.Add(int64(len(p)))
	return c.TCPConn.Write(p)
}

type embeddingDialer struct {
	NoSplice
	seen atomic.Int64
}

func (d *embeddingDialer) DialBackend(ctx context.Context, network, addr string, n uint32) (net.Conn, error) {
	c, err := d.NoSplice.DialBackend(ctx, network, addr, n)
	if err != nil {
		return nil, err
	}
	return embedding{c.(*net.TCPConn), &d.seen}, nil
}

// TestSplicerSeesEveryWrite: nothing is written around the connection that the
// Splicer dialled, though it embeds one that knows writev and sendfile.
func TestSplicerSeesEveryWrite(t *testing.T) {
	for _, size := range []int{10, joined, joined + 1, 1 << 20} {
		d := &embeddingDialer{}
		g := newRig(t, func(o *Options) { o.Splicer = d })
		g.add("a", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		for _, path := range []string{"/v1/chat/completions", "/upload"} {
			d.seen.Store(0)
			g.post(path, strings.Repeat("x", size), "Content-Type", "text/plain")
			if seen := d.seen.Load(); seen < int64(size)+100 {
				t.Errorf("%s, %d bytes: the connection saw %d written", path, size, seen)
			}
		}
	}
}

// TestBodyIsWrittenAtOnce: a head and a short body go out in one write, a long
// one in two (one writev on plain TCP), and nothing is kept back.
func TestBodyIsWrittenAtOnce(t *testing.T) {
	d := &countingDialer{}
	g := newRig(t, func(o *Options) { o.Splicer = d })
	g.add("a", echo)
	for _, tc := range []struct {
		body, head int
		writes     int64
	}{{1, 1, 1}, {joined, 1, 1}, {100000, 1, 2}, {1 << 20, 1, 2}, {1, 10000, 4}, {100000, 10000, 4}, {0, 1, 1}, {0, 10000, 3}} {
		d.writes.Store(0)
		body := strings.Repeat("x", tc.body)
		resp, got := g.post("/v1/chat/completions", body, "X-Long", strings.Repeat("y", tc.head))
		if resp.StatusCode != 200 || !strings.HasSuffix(got, "\n"+body) {
			t.Errorf("%+v: %d, %d bytes", tc, resp.StatusCode, len(got))
		}
		if n := d.writes.Load(); n > tc.writes {
			t.Errorf("%+v: %d writes", tc, n)
		}
	}
	g.idle()
}

// TestIdleConnectionsAreShortLived: ours end before uvicorn's 5 s (E9).
func TestIdleConnectionsAreShortLived(t *testing.T) {
	b, err := newBackend(0, Backend{Name: "a", URL: "http://h:1"})
	if err != nil {
		t.Fatal(err)
	}
	if d := b.transport.IdleTimeout; d <= 0 || d >= 5*time.Second {
		t.Errorf("idle connections live %s", d)
	}
}

// TestManyAtOnce: no cap on connections makes requests wait for others (E13).
// Every request is held until all of them are at the backend.
func TestManyAtOnce(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Params.Timeouts.Connect = 0 })
	const n = 300
	var inside atomic.Int64
	all := make(chan struct{})
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if inside.Add(1) == n {
			close(all)
		}
		select {
		case <-all:
		case <-r.Context().Done():
		case <-t.Context().Done():
		case <-time.After(20 * time.Second):
			w.WriteHeader(http.StatusTeapot) // some are held up elsewhere
		}
		_, _ = io.WriteString(w, "ok")
	})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			resp, err := g.client.Post("http://"+g.addr+"/v1/chat/completions", "application/json", strings.NewReader(chat("x")))
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	wg.Wait()
	g.idle()
}

// TestRemoveBackend: a removed backend gets nothing new and finishes what it has (D3).
func TestRemoveBackend(t *testing.T) {
	g := newRig(t)
	release := make(chan struct{})
	slot := g.add("a", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-release
		_, _ = io.WriteString(w, "late")
	})
	done := make(chan string, 1)
	go func() {
		_, body := g.post("/v1/chat/completions", chat("x"))
		done <- body
	}()
	testutil.Eventually(t, "the request is in flight", func() bool { return g.fleet.Snapshot(0, nil)[0].InFlight == 1 })
	g.fleet.Remove(slot)
	g.proxy.RemoveBackend(slot)
	g.proxy.RemoveBackend(slot)
	if resp, _ := g.post("/v1/chat/completions", chat("x")); resp.StatusCode != 503 {
		t.Errorf("after the removal: %d", resp.StatusCode)
	}
	again := g.add("b", echo)
	if again != slot {
		t.Fatalf("slot %d, want %d again", again, slot)
	}
	if err := g.proxy.AddBackend(slot, Backend{Name: "c", URL: "http://h"}); err == nil {
		t.Error("a slot was taken twice")
	}
	close(release)
	if body := <-done; body != "late" {
		t.Errorf("the request in flight got %q", body)
	}
	g.idle()
}

func TestBackendURLs(t *testing.T) {
	for url, ok := range map[string]bool{
		"http://h": true, "https://h:1/base/": true, "http://[::1]:8000": true,
		"": false, "h:8000": false, "ftp://h": false, "http://": false, "http://u:p@h": false, "http://h?x=1": false, "http://h\x00": false,
	} {
		if _, err := newBackend(0, Backend{Name: "a", URL: url}); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// TestBasePath: a backend's own path goes before the request's.
func TestBasePath(t *testing.T) {
	g := newRig(t)
	var seen string
	s := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.RequestURI })
	slot := g.add("plain", s)
	g.fleet.Remove(slot)
	base := g.proxy.backend(slot).base.String()
	g.proxy.RemoveBackend(slot)
	g.addURL("based", base+"/a%2Fb/")
	g.post("/v1/files/x%2Fy?z=1", "{}")
	if seen != "/a%2Fb/v1/files/x%2Fy?z=1" {
		t.Errorf("backend saw %q", seen)
	}
}
