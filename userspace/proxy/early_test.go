package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAnswerBeforeTheUploadsEnd: a backend refuses an upload by its head alone. The
// client gets the answer, and its connection ends: net/http would take what is left of
// the body, or of a body that stood still for too long, for the next request, or come to
// read the connection twice at a time and panic.
func TestAnswerBeforeTheUploadsEnd(t *testing.T) {
	const limit = 50 * time.Millisecond
	for _, tc := range []struct {
		name string
		wait time.Duration // after the answer
		send string        // then
	}{
		{"rest and another request", 0, "rest!" + "POST /hidden HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"},
		{"another request instead of the rest", 4 * limit, "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newRig(t, func(o *Options) { o.Params.Timeouts.Body = limit })
			g.addRaw("a", func(c net.Conn) {
				r, br, err := readHead(c)
				if err != nil {
					return
				}
				if r.URL.Path != "/upload" {
					t.Errorf("%s reached the backend", r.URL.Path)
				}
				_, _ = io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
				_, _ = io.Copy(io.Discard, br)
			})
			c := g.dial()
			_, _ = io.WriteString(c, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: audio/wav\r\nContent-Length: 10\r\n\r\nbegin")
			br := bufio.NewReader(c)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); resp.StatusCode != 401 || string(body) != "no" || err != nil {
				t.Errorf("%s %q, %v", resp.Status, body, err)
			}
			if !resp.Close {
				t.Error("the client is not told that the connection ends")
			}
			time.Sleep(tc.wait) // on a slow machine this proves less
			_, _ = io.WriteString(c, tc.send)
			if more, _ := io.ReadAll(br); len(more) > 0 {
				t.Errorf("then came %q", more)
			}
			g.idle()
			for _, s := range g.ledger.ended() {
				if s.Abort == AbortHandler {
					t.Errorf("a handler panicked: %+v", s)
				}
			}
		})
	}
}

// TestEarlyAnswerIsReadAfterTheUpload: a client that sends all of a long body before it
// reads gets what the backend said at its beginning, instead of a reset (E10).
func TestEarlyAnswerIsReadAfterTheUpload(t *testing.T) {
	const size = 20 << 20
	for _, close := range []bool{true, false} {
		g := newRig(t)
		end := make(chan struct{})
		g.addRaw("a", func(c net.Conn) {
			if _, _, err := readHead(c); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
			if !close {
				<-end
			}
		})
		c := g.dial()
		_, _ = fmt.Fprintf(c, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: audio/wav\r\nContent-Length: %d\r\n\r\n", size)
		piece := strings.Repeat("x", 1<<20)
		for i := range size >> 20 {
			if _, err := io.WriteString(c, piece); err != nil {
				t.Errorf("close %t: the body was not taken after %d MB: %v", close, i, err)
				break
			}
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("close %t: no answer: %v", close, err)
		} else if body, err := io.ReadAll(resp.Body); resp.StatusCode != 413 || string(body) != "no" || err != nil {
			t.Errorf("close %t: %s %q, %v", close, resp.Status, body, err)
		}
		_ = c.Close()
		g.idle()
		if !close {
			end <- struct{}{}
		}
	}
}

// TestUploadKeepsTheConnection: one that was read to its end before the answer, be that
// a refusal.
func TestUploadKeepsTheConnection(t *testing.T) {
	for _, framing := range []string{"Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
		for _, code := range []int{200, 502} {
			g := newRig(t)
			g.add("a", func(w http.ResponseWriter, r *http.Request) {
				echo(w, r)
				if code == 502 {
					panic(http.ErrAbortHandler) // before anything was sent
				}
			})
			c := g.dial()
			br := bufio.NewReader(c)
			for range 3 {
				_, _ = io.WriteString(c, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: audio/wav\r\n"+framing)
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatal(err)
				}
				if body, _ := io.ReadAll(resp.Body); resp.StatusCode != code || resp.Close || code == 200 && !strings.HasSuffix(string(body), "hello") {
					t.Errorf("%d, close %t, %q; want %d", resp.StatusCode, resp.Close, body, code)
				}
			}
		}
	}
}
