package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/decide"
)

// held is a Router whose second choice waits.
type held struct {
	Router
	routes atomic.Int64
	again  chan struct{} // closed when it begins
	until  chan struct{} // and ends
}

func (h *held) Route(r decide.Request, now decide.Instant) (decide.Ticket, decide.Decision) {
	if h.routes.Add(1) == 2 {
		close(h.again)
		<-h.until
		time.Sleep(20 * time.Millisecond) // the chance to get it wrong
	}
	return h.Router.Route(r, now)
}

// TestA503WhileTheBodyIsWritten: that the body has been written to the backend that
// refused is no reason to drop it once it is to be sent to another.
func TestA503WhileTheBodyIsWritten(t *testing.T) {
	h := &held{again: make(chan struct{}), until: make(chan struct{})}
	g := newRig(t, func(o *Options) {
		h.Router = o.Router
		o.Router = h
		o.Params.MaxBodyBytes, o.Params.BodyMemory = 8<<20, 12<<20
	})
	var first atomic.Bool
	serve := func(c net.Conn) {
		r, _, err := readHead(c)
		if err != nil {
			return
		}
		if first.CompareAndSwap(false, true) {
			_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1\r\n\r\n")
			<-h.again
			_, _ = io.Copy(io.Discard, r.Body)
			close(h.until)
			_, _ = io.Copy(io.Discard, c)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n%8d", n)
	}
	g.addRaw("a", serve)
	g.addRaw("b", serve)
	body := chat(strings.Repeat("word ", 1<<20))
	resp, got := g.post("/v1/chat/completions", body)
	if resp.StatusCode != 200 || got != fmt.Sprintf("%8d", len(body)) {
		t.Errorf("%d, %s bytes arrived of %d", resp.StatusCode, got, len(body))
	}
	g.idle()
}
