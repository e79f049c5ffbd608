package upstream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// peeker is a body that can be looked into.
type peeker interface {
	Peek(d time.Duration, more func([]byte) bool)
}

// TestPeek: it shows the body's first bytes without their framing, waits for them where
// it is to, and takes nothing away.
func TestPeek(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	long := strings.Repeat("x", bufferBytes)
	for name, tc := range map[string]struct {
		parts []string // sent one after another, each when the one before was shown
		want  string   // what more is to see before it is content
		seen  string   // what it has seen at last
		body  string
	}{
		"all at once":          {[]string{chunked}, "hello", "hello", "hello"},
		"a length":             {[]string{plain}, "hello", "hello", "hello"},
		"to the end":           {[]string{"HTTP/1.1 200 OK\r\n\r\nhello"}, "hello", "hello", "hello"},
		"behind the head":      {[]string{head, "5\r\nhello\r\n", "0\r\n\r\n"}, "hello", "hello", "hello"},
		"in pieces":            {[]string{head, "1", "0\r\nhel", "lo, you the", "re\r\n", "0\r\n\r\n"}, "hello, you there", "hello, you there", "hello, you there"},
		"over chunks":          {[]string{head + "2\r\nhe\r\n", "3;x=y\r\nllo\r\n", "0\r\n\r\n"}, "hello", "hello", "hello"},
		"never enough":         {[]string{head + "5\r\nhello\r\n0\r\n\r\n"}, "more", "hello", "hello"},
		"nothing":              {[]string{head + "0\r\n\r\n"}, "more", "", ""},
		"more than is kept":    {[]string{head + "1800\r\n" + long + long[:0x800] + "\r\n0\r\n\r\n"}, "y", long[:bufferBytes-6], long + long[:0x800]},
		"the server goes away": {[]string{"HTTP/1.1 200 OK\r\n\r\n", "hel"}, "hello", "hel", "hel"},
	} {
		t.Run(name, func(t *testing.T) {
			next := make(chan bool, len(tc.parts))
			next <- true
			g := newRig(t, func(c net.Conn, br *bufio.Reader, _ int) {
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				for _, p := range tc.parts {
					<-next
					_, _ = io.WriteString(c, p)
				}
				if strings.Contains(tc.parts[0], ": ") { // else only its end ends the answer
					_, _ = io.Copy(io.Discard, br)
				}
			})
			resp, err := g.t.RoundTrip(g.request(http.MethodGet, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			patience := 20 * time.Second
			if strings.Contains(tc.want, "more") {
				patience = 20 * time.Millisecond
			}
			sent, seen := 1, ""
			resp.Body.(peeker).Peek(patience, func(begin []byte) bool {
				seen = string(begin)
				if seen != tc.want && sent < len(tc.parts) {
					next <- true
					sent++
				}
				return seen != tc.want
			})
			if seen != tc.seen {
				t.Errorf("saw %d bytes %.40q, want %d %.40q", len(seen), seen, len(tc.seen), tc.seen)
			}
			for ; sent < len(tc.parts); sent++ {
				next <- true
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || string(body) != tc.body {
				t.Errorf("body %.40q, %v", body, err)
			}
		})
	}
}

// TestPeekWaitsNoLongerThanItMay, and the answer may stand still afterwards for as long
// as it likes; the connection is used again.
func TestPeekWaitsNoLongerThanItMay(t *testing.T) {
	goOn := make(chan bool)
	g := newRig(t, func(c net.Conn, br *bufio.Reader, _ int) {
		for {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
			<-goOn
			_, _ = io.WriteString(c, "hello")
		}
	})
	for range 2 {
		resp, err := g.t.RoundTrip(g.request(http.MethodGet, nil))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		resp.Body.(peeker).Peek(time.Millisecond, func(begin []byte) bool { asked += 1 + len(begin); return true })
		if asked != 1 {
			t.Errorf("asked %d times and bytes", asked)
		}
		time.AfterFunc(20*time.Millisecond, func() { goOn <- true })
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hello" {
			t.Errorf("body %q, %v", body, err)
		}
		_ = resp.Body.Close()
		resp.Body.(peeker).Peek(time.Hour, func([]byte) bool { t.Error("asked after the end"); return false })
	}
	if n := g.dials.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestPeekEndsWithTheContext.
func TestPeekEndsWithTheContext(t *testing.T) {
	g := newRig(t, answers("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"))
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	resp, err := g.t.RoundTrip(g.request(http.MethodGet, nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.(peeker).Peek(time.Hour, func([]byte) bool { cancel(why); return true })
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	_ = resp.Body.Close()
}
