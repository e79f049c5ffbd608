package upstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// rig is a Transport in front of a server that the test plays.
type rig struct {
	*testing.T
	t     *Transport
	dials atomic.Int64
}

// newRig serves each connection with serve, which gets its number.
func newRig(t *testing.T, serve func(c net.Conn, br *bufio.Reader, n int)) *rig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c, bufio.NewReader(c), n)
			}()
		}
	}()
	g := &rig{T: t}
	var d net.Dialer
	g.t = &Transport{Addr: ln.Addr().String(), MaxHead: 1 << 16, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		g.dials.Add(1)
		return d.DialContext(ctx, network, addr)
	}}
	t.Cleanup(func() {
		g.t.Close()
		_ = ln.Close()
		<-done
	})
	return g
}

// answers serves requests with one text after another, and the last again and again.
func answers(texts ...string) func(net.Conn, *bufio.Reader, int) {
	return func(c net.Conn, br *bufio.Reader, _ int) {
		for i := 0; ; i++ {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			if _, err := io.WriteString(c, texts[min(i, len(texts)-1)]); err != nil {
				return
			}
		}
	}
}

func (g *rig) request(method string, body io.Reader) *http.Request {
	g.Helper()
	r, err := http.NewRequestWithContext(g.Context(), method, "http://"+g.t.Addr+"/x", body)
	if err != nil {
		g.Fatal(err)
	}
	return r
}

// memory is a body as bytes.Reader is one, with a Close.
type memory struct {
	*bytes.Reader
	closed atomic.Bool
}

func (m *memory) Close() error { m.closed.Store(true); return nil }

func (g *rig) post(n int) (*http.Request, *memory) {
	m := &memory{Reader: bytes.NewReader(bytes.Repeat([]byte("x"), n))}
	r := g.request(http.MethodPost, nil)
	r.Body, r.ContentLength = m, int64(n)
	return r, m
}

// read sends r and reads the answer to its end.
func (g *rig) read(r *http.Request) (*http.Response, string, error) {
	resp, err := g.t.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

func (g *rig) idle() int {
	g.t.mu.Lock()
	defer g.t.mu.Unlock()
	return len(g.t.idle)
}

const (
	plain   = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\nX-End: yes\r\n\r\n"
)

// TestAnswers: which answers come whole, which do not, and after which of them the
// connection serves another request.
func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		name, method, answer string
		body                 string
		fails                error // of the head or the body
		kept                 bool
	}{
		{name: "length", answer: plain, body: "hello", kept: true},
		{name: "chunked", answer: chunked, body: "hello", kept: true},
		{name: "empty", answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", kept: true},
		{name: "no content", answer: "HTTP/1.1 204 No Content\r\n\r\n", kept: true},
		{name: "not modified", method: "GET", answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", kept: true},
		{name: "head", method: "HEAD", answer: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", kept: true},
		{name: "after others", answer: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + plain, body: "hello", kept: true},
		{name: "close", answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", body: "hello"},
		{name: "HTTP/1.0", answer: "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", body: "hello"},
		{name: "more than the answer", answer: plain + "HTTP/1.1 200 OK\r\n", body: "hello"},
		{name: "more than no answer", answer: "HTTP/1.1 204 No Content\r\n\r\nx"},
		{name: "no status", answer: "HTTP/1.1 099 OK\r\nContent-Length: 38\r\n\r\n" + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", fails: errStatus},
		{name: "another protocol", answer: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"},
		{name: "cut body", answer: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello" + hangUp, body: "hello", fails: io.ErrUnexpectedEOF},
		{name: "cut chunk", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello" + hangUp, body: "hello", fails: io.ErrUnexpectedEOF},
		{name: "no last chunk", answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + hangUp, body: "hello", fails: io.ErrUnexpectedEOF},
		{name: "until the end", answer: "HTTP/1.1 200 OK\r\n\r\nhello" + hangUp, body: "hello"},
		{name: "nothing", answer: hangUp, fails: io.ErrUnexpectedEOF},
		{name: "half a head", answer: "HTTP/1.1 200 OK\r\nX: " + hangUp, fails: io.ErrUnexpectedEOF},
		{name: "endless head", answer: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 1<<17), fails: ErrHeadTooLarge},
		{name: "endless early heads", answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", 1<<12), fails: ErrHeadTooLarge},
	} {
		for _, size := range []int{0, 100, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", tc.name, size), func(t *testing.T) {
				g := newRig(t, func(c net.Conn, br *bufio.Reader, n int) {
					text, cut := strings.CutSuffix(tc.answer, hangUp)
					if cut {
						r, err := http.ReadRequest(br)
						if err == nil {
							_, _ = io.Copy(io.Discard, r.Body)
							_, _ = io.WriteString(c, text)
						}
						return
					}
					answers(text)(c, br, n)
				})
				var r *http.Request
				var m *memory
				if size > 0 && tc.method == "" {
					r, m = g.post(size)
				} else {
					r = g.request(tc.method, nil)
				}
				resp, text, err := g.read(r)
				if !errors.Is(err, tc.fails) {
					t.Errorf("error %v, want %v", err, tc.fails)
				}
				if text != tc.body {
					t.Errorf("body %q, want %q", text, tc.body)
				}
				if tc.name == "chunked" && resp.Trailer.Get("X-End") != "yes" {
					t.Errorf("trailer %v", resp.Trailer)
				}
				if m != nil { // its writer may be a moment behind
					for !m.closed.Load() {
						time.Sleep(time.Millisecond)
					}
				}
				for tc.kept && g.idle() == 0 {
					time.Sleep(time.Millisecond)
				}
				if !tc.kept && g.idle() > 0 {
					t.Error("the connection was kept")
				}
			})
		}
	}
}

// hangUp ends an answer after which the server closes the connection.
const hangUp = "\x00"

// TestOneConnectionServesAll: one after another, requests share a connection, and
// the answer of each is its own.
func TestOneConnectionServesAll(t *testing.T) {
	g := newRig(t, answers(plain, chunked, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbye"))
	for i, want := range []string{"hello", "hello", "bye", "bye"} {
		r, _ := g.post(10 << (3 * i))
		if _, text, err := g.read(r); err != nil || text != want {
			t.Errorf("%q, %v", text, err)
		}
	}
	if n := g.dials.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestClosedMeanwhile: a connection that the server has closed, or on which it has
// said something unasked, is not used again.
func TestClosedMeanwhile(t *testing.T) {
	for _, unasked := range []string{"", "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"} {
		left := make(chan struct{}, 3)
		g := newRig(t, func(c net.Conn, br *bufio.Reader, n int) {
			if _, err := http.ReadRequest(br); err == nil {
				_, _ = io.WriteString(c, plain)
				<-left
				_, _ = io.WriteString(c, unasked)
			}
		})
		for i := range 3 {
			if _, text, err := g.read(g.request("POST", nil)); err != nil || text != "hello" {
				t.Fatalf("%q, %v", text, err)
			}
			left <- struct{}{}
			g.t.mu.Lock()
			c := g.t.idle[0]
			g.t.mu.Unlock()
			for c.quiet() {
				time.Sleep(time.Millisecond)
			}
			if n := g.dials.Load(); n != int64(i+1) {
				t.Errorf("request %d: %d connections", i, n)
			}
		}
	}
}

// TestRepeats: a kept connection that breaks without an answer costs a GET nothing;
// whether a POST may be sent again is not for the Transport to say.
func TestRepeats(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		g := newRig(t, func(c net.Conn, br *bufio.Reader, n int) {
			if _, err := http.ReadRequest(br); err == nil && n < 3 {
				_, _ = io.WriteString(c, plain)
				_, _ = http.ReadRequest(br) // and hang up
			}
		})
		if _, _, err := g.read(g.request(method, nil)); err != nil {
			t.Fatal(err)
		}
		_, text, err := g.read(g.request(method, nil))
		if method == "GET" && (err != nil || text != "hello" || g.dials.Load() != 2) {
			t.Errorf("%s: %q, %v, %d connections", method, text, err, g.dials.Load())
		}
		if method == "POST" && (err == nil || g.dials.Load() != 1) {
			t.Errorf("%s: %v, %d connections", method, err, g.dials.Load())
		}
	}
}

// TestRepeatIsTraced: each turn is announced, so that what was noted of the
// connection that broke is not taken for what the error is about.
func TestRepeatIsTraced(t *testing.T) {
	g := newRig(t, func(c net.Conn, br *bufio.Reader, n int) {
		if _, err := http.ReadRequest(br); err == nil {
			_, _ = io.WriteString(c, plain)
			_, _ = http.ReadRequest(br) // and hang up
		}
	})
	if _, _, err := g.read(g.request("GET", nil)); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	g.t.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, refused }
	var log []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn:      func(string) { log = append(log, "get") },
		GotConn:      func(i httptrace.GotConnInfo) { log = append(log, fmt.Sprint("got ", i.Reused)) },
		WroteRequest: func(i httptrace.WroteRequestInfo) { log = append(log, fmt.Sprint("wrote ", i.Err)) },
	})
	if _, _, err := g.read(g.request("GET", nil).WithContext(ctx)); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if got := strings.Join(log, ","); got != "get,got true,wrote <nil>,get" {
		t.Error(got)
	}
}

// TestAnswerBeforeTheRequestIsRead: a server that refuses a body it does not read is
// heard, and the connection is not used again.
func TestAnswerBeforeTheRequestIsRead(t *testing.T) {
	const refusal = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!"
	for _, closes := range []bool{true, false} {
		over := make(chan struct{})
		g := newRig(t, func(c net.Conn, br *bufio.Reader, _ int) {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, refusal)
			if !closes {
				<-over
			}
		})
		r, m := g.post(64 << 20)
		resp, text, err := g.read(r)
		if err != nil || resp.StatusCode != 413 || text != "no!" {
			t.Errorf("closes %t: %v %q", closes, err, text)
		}
		if g.idle() != 0 {
			t.Error("the connection was kept")
		}
		for !m.closed.Load() { // the writer ends as well
			time.Sleep(time.Millisecond)
		}
		close(over)
	}
}

// failing is a body that breaks off.
type failing struct{}

func (f failing) Read([]byte) (int, error) { return 0, errors.New("the client has left") }

// TestBadRequest: the fault is the request's, not that of the connection that had to
// be closed for it.
func TestBadRequest(t *testing.T) {
	for _, tc := range []struct {
		name string
		body io.Reader
		path string
	}{
		{"body breaks off", io.MultiReader(strings.NewReader("x"), failing{}), "/x"},
		{"body is short", strings.NewReader("x"), "/x"},
		{"path is malformed", strings.NewReader(strings.Repeat("x", 100)), "/x\n"},
	} {
		g := newRig(t, answers(plain))
		r := g.request("POST", nil)
		r.URL = &url.URL{Host: g.t.Addr, Opaque: tc.path}
		r.Body, r.ContentLength = io.NopCloser(tc.body), 100
		if _, _, err := g.read(r); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestBodyStandsStill: an answer need not wait for the request's end, nor does a
// server that hangs up.
func TestBodyStandsStill(t *testing.T) {
	for _, answer := range []string{plain, ""} {
		g := newRig(t, func(c net.Conn, br *bufio.Reader, _ int) {
			if _, err := http.ReadRequest(br); err == nil {
				_, _ = io.WriteString(c, answer)
			}
		})
		pr, pw := io.Pipe()
		r := g.request("POST", pr)
		r.ContentLength = -1
		_, text, err := g.read(r)
		if answer != "" && (err != nil || text != "hello") {
			t.Errorf("%q, %v", text, err)
		}
		if answer == "" && err == nil {
			t.Error("an answer from nowhere")
		}
		_ = pw.Close()
	}
}

// TestContextEnds: at any moment the context's end closes the connection, and its
// cause is the error.
func TestContextEnds(t *testing.T) {
	for _, answer := range []string{"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"} {
		asked, gone := make(chan struct{}), make(chan struct{})
		g := newRig(t, func(c net.Conn, br *bufio.Reader, _ int) {
			if _, err := http.ReadRequest(br); err == nil {
				_, _ = io.WriteString(c, answer)
			}
			close(asked)
			_, _ = br.ReadByte()
			close(gone)
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		go func() {
			<-asked
			cancel(why)
		}()
		if _, _, err := g.read(g.request("POST", nil).WithContext(ctx)); !errors.Is(err, why) {
			t.Errorf("after %q: %v", answer, err)
		}
		<-gone
		if g.idle() != 0 {
			t.Error("the connection was kept")
		}
		r, m := g.post(10)
		if _, _, err := g.read(r.WithContext(ctx)); !errors.Is(err, why) || !m.closed.Load() {
			t.Errorf("with a context that has ended: %v", err)
		}
	}
}

// TestCloseEndsTheAnswer: whoever has had enough closes the body, and the server
// sees it.
func TestCloseEndsTheAnswer(t *testing.T) {
	gone := make(chan struct{})
	g := newRig(t, func(c net.Conn, br *bufio.Reader, _ int) {
		if _, err := http.ReadRequest(br); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		}
		_, _ = br.ReadByte()
		close(gone)
	})
	resp, err := g.t.RoundTrip(g.request("POST", nil))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	_ = resp.Body.Close()
	<-gone
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, errClosed) {
		t.Errorf("a read after Close: %v", err)
	}
	if g.idle() != 0 {
		t.Error("the connection was kept")
	}
}

// TestIdleEnds: what is not used is closed after IdleTimeout, and by Close at once.
func TestIdleEnds(t *testing.T) {
	for _, closes := range []bool{false, true} {
		gone := make(chan struct{})
		g := newRig(t, func(c net.Conn, br *bufio.Reader, n int) {
			answers(plain)(c, br, n)
			close(gone)
		})
		if !closes {
			g.t.IdleTimeout = 20 * time.Millisecond
		}
		if _, _, err := g.read(g.request("POST", nil)); err != nil {
			t.Fatal(err)
		}
		if closes {
			g.t.Close()
		}
		<-gone
		if g.idle() != 0 {
			t.Error("it is still there")
		}
	}
}

// TestAfterClose: a connection under way ends with its answer.
func TestAfterClose(t *testing.T) {
	g := newRig(t, answers(plain))
	resp, err := g.t.RoundTrip(g.request("POST", nil))
	if err != nil {
		t.Fatal(err)
	}
	g.t.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	if g.idle() != 0 {
		t.Error("the connection was kept")
	}
}

// TestTrace: the calls that a proxy relies on.
func TestTrace(t *testing.T) {
	g := newRig(t, answers("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+plain))
	var log []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn: func(a string) { log = append(log, "get "+fmt.Sprint(a == g.t.Addr)) },
		GotConn: func(i httptrace.GotConnInfo) { log = append(log, fmt.Sprint("got ", i.Reused)) },
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			log = append(log, fmt.Sprint("wrote ", i.Err))
		},
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			log = append(log, fmt.Sprint(code, " ", h.Get("Link")))
			return nil
		},
	})
	for range 2 {
		if _, _, err := g.read(g.request("POST", nil).WithContext(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	want := "get true,got false,wrote <nil>,103 x,get true,got true,wrote <nil>,103 x"
	if got := strings.Join(log, ","); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestTLS: with TLS connections are kept as well, and a stranger's certificate is
// refused.
func TestTLS(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	var d net.Dialer
	g := &rig{T: t, t: &Transport{
		Addr: u.Host, MaxHead: 1 << 16, HandshakeTimeout: time.Minute,
		TLS: &tls.Config{RootCAs: roots, ServerName: "example.com"},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return d.DialContext(ctx, network, addr)
		},
	}}
	defer g.t.Close()
	var first net.Addr
	for range 3 {
		r, _ := g.post(1000)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if first == nil {
				first = i.Conn.LocalAddr()
			} else if first.String() != i.Conn.LocalAddr().String() {
				t.Error("another connection")
			}
		}})
		if _, text, err := g.read(r.WithContext(ctx)); err != nil || len(text) != 1000 {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
	}
	g.t.Close()
	g.t.TLS = &tls.Config{ServerName: "example.com"}
	r, m := g.post(10)
	if _, _, err := g.read(r); err == nil || !m.closed.Load() {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// joining sends what is written to it while it holds in one piece.
type joining struct {
	net.Conn
	hold bool
	held []byte
}

func (j *joining) Write(p []byte) (int, error) {
	if j.hold {
		j.held = append(j.held, p...)
		return len(p), nil
	}
	return j.Conn.Write(p)
}

// newTLSRig serves each connection over TLS.
func newTLSRig(t *testing.T, serve func(c net.Conn, br *bufio.Reader, n int)) *rig {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS() // for its certificate
	defer srv.Close()
	server := &tls.Config{Certificates: srv.TLS.Certificates, DynamicRecordSizingDisabled: true}
	g := newRig(t, func(c net.Conn, _ *bufio.Reader, n int) {
		s := tls.Server(&joining{Conn: c}, server)
		serve(s, bufio.NewReader(s), n)
	})
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	g.t.TLS = &tls.Config{RootCAs: roots, ServerName: "example.com"}
	return g
}

// TestMoreThanTheAnswerByTLS: what came behind an answer and rests decrypted in the
// TLS connection, where the socket does not show it, is nobody's answer.
func TestMoreThanTheAnswerByTLS(t *testing.T) {
	const length = 8 << 10 // more than a buffer, less than a record
	want := strings.Repeat("x", length)
	for name, more := range map[string]string{"an answer": plain, "a farewell": ""} {
		t.Run(name, func(t *testing.T) {
			g := newTLSRig(t, func(c net.Conn, br *bufio.Reader, n int) {
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				secure := c.(*tls.Conn)
				j := secure.NetConn().(*joining)
				j.hold = true
				_, _ = io.WriteString(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s", length, want, more))
				if more == "" {
					_ = secure.CloseWrite()
				}
				_ = j.SetWriteDeadline(time.Time{}) // CloseWrite has let it pass
				_, _ = j.Conn.Write(j.held)
				j.hold = false
				_, _ = br.ReadByte()
			})
			for i := range 3 {
				resp, err := g.t.RoundTrip(g.request("POST", nil))
				if err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
				got := make([]byte, 2*length)
				n, err := io.ReadFull(resp.Body, got) // large reads go past the buffer
				if !errors.Is(err, io.ErrUnexpectedEOF) || string(got[:n]) != want {
					t.Fatalf("request %d: %d bytes, %v", i, n, err)
				}
			}
			if n := g.dials.Load(); n != 3 {
				t.Errorf("%d connections", n)
			}
		})
	}
}
