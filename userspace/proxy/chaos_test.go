package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// whims are what a backend of TestAccountsComeBack does with a request: what it sends,
// and whether it hangs up then.
var whims = []struct {
	send   string
	hangUp bool
}{
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false},
	{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true}, // it was to be kept
	{"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n9\r\ndata: x\n\n\r\n0\r\n\r\n", false},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n9\r\ndata: x\n\n\r\n", true},
	{"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nshort", true},
	{"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno", false},
	{"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno", false},
	{"", true},
}

// moody answers by whim, at times before it has read the body.
func moody(c net.Conn) {
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if rand.IntN(8) > 0 {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
		}
		w := whims[rand.IntN(len(whims))]
		if _, err := io.WriteString(c, w.send); err != nil || w.hangUp {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// halting is an upload that may stand still before its end.
type halting struct {
	left int
	halt time.Duration
}

func (h *halting) Read(p []byte) (int, error) {
	if h.left == 0 {
		return 0, io.EOF
	}
	if h.left < 1000 {
		time.Sleep(h.halt)
		h.halt = 0
	}
	n := min(len(p), h.left, 8000)
	h.left -= n
	return n, nil
}

// ask sends one request of any kind; the client may leave at any time.
func (g *rig) ask(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	method, path, kind, body := http.MethodPost, "/v1/chat/completions", "application/json", io.Reader(nil)
	switch rand.IntN(5) {
	case 0:
		method, path = http.MethodGet, "/v1/models"
	case 1:
		path, kind, body = "/upload", "audio/wav", &halting{rand.IntN(300_000), time.Duration(rand.IntN(2)) * 80 * time.Millisecond}
	case 2:
		body = strings.NewReader(chat(strings.Repeat("y", rand.IntN(200_000))))
	default:
		body = strings.NewReader(chat("x"))
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr+path, body)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", kind)
	if rand.IntN(5) == 0 {
		defer time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, cancel).Stop()
	}
	if resp, err := g.client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// TestAccountsComeBack: whatever backends and clients do, and while backends come and
// go, every request ends once, no handler panics, and neither load nor memory nor a
// goroutine stays behind.
func TestAccountsComeBack(t *testing.T) {
	g := newRig(t, func(o *Options) {
		o.Params.Retry503 = 2
		o.Params.Timeouts.Body = 50 * time.Millisecond
		o.Params.Timeouts.ResponseHead, o.Params.Timeouts.Idle = 200*time.Millisecond, 200*time.Millisecond
	})
	for i := range 4 {
		g.addRaw(fmt.Sprint("moody", i), moody)
	}
	g.addURL("dead", "http://"+refusing(t))
	urls := make([]string, len(*g.proxy.backends.Load()))
	for slot, b := range *g.proxy.backends.Load() {
		urls[slot] = b.base.String()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for ctx.Err() == nil {
				g.ask(ctx)
			}
		})
	}
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			time.Sleep(20 * time.Millisecond)
			slot := rand.IntN(len(urls))
			g.fleet.Remove(slot)
			g.proxy.RemoveBackend(slot)
			time.Sleep(5 * time.Millisecond)
			g.addURL(fmt.Sprint("again", n), urls[slot])
		}
	})
	all.Wait()
	g.client.CloseIdleConnections()
	g.idle()
	for _, b := range *g.proxy.backends.Load() {
		b.transport.Close() // else the backends' end waits for their idle time
	}
	ends := g.ledger.ended()
	for _, s := range ends {
		if s.Abort == AbortHandler {
			t.Errorf("a handler panicked: %+v", s)
		}
	}
	t.Logf("%d requests", len(ends))
}
