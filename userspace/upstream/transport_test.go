package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"
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
