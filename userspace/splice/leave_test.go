package splice_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/splice"
)

// until streams tokens until the agent's side of the connection is gone, and says so.
func until(name string, gone chan<- int) script {
	return func(c net.Conn, _ *http.Request) bool {
		i := 0
		for ok := send(c, head); ok; i++ {
			ok = send(c, chunk(token(name, i, 100)))
			if i == 0 {
				firstPause()
			}
			pause()
		}
		gone <- i
		return false
	}
}

// E9: a client that goes away ends the generation: the engine's connection is
// closed while the kernel holds the stream.
func TestClientLeaves(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *peer){
		"reset": func(t *testing.T, p *peer) {
			if err := errors.Join(p.SetLinger(0), p.Close()); err != nil {
				t.Fatal(err)
			}
		},
		"close":      func(t *testing.T, p *peer) { p.Close() },
		"half-close": func(t *testing.T, p *peer) { _ = p.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			gone := make(chan int, 1)
			e := newEngine(t, until("s", gone))
			p := r.dial(t)
			p.ask(t, e, "/")
			want := tokens("s", 20, 100)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(p.open(t), got); err != nil {
				t.Fatal(err)
			}
			same(t, string(got), want)
			if r.counts()[bpf.Redirected].Events == 0 {
				t.Fatal("nothing was redirected")
			}
			leave(t, p)
			left := time.Now()
			select {
			case <-gone:
				t.Logf("the engine was told after %v", time.Since(left))
			case <-time.After(20 * time.Second):
				t.Fatal("the engine goes on")
			}
			testutil.Eventually(t, "the response to end", func() bool { return r.ended(splice.Aborted, splice.Spliced) == 1 })
			testutil.Eventually(t, "the flow to go", func() bool { live, err := r.set.Live(); return err == nil && len(live) == 0 })
		})
	}
}

// A client that leaves while the next request of another is on the same engine
// gives nobody foreign bytes: the engine's connection is never used again.
func TestAbortedConnectionIsNotReused(t *testing.T) {
	r := newRig(t)
	gone := make(chan int, 1)
	long := until("long", gone)
	e := newEngine(t, func(c net.Conn, req *http.Request) bool {
		if req.URL.Path == "/long" {
			return long(c, req)
		}
		return stream("short", 20, 80)(c, req)
	})
	for range 5 {
		p := r.dial(t)
		p.ask(t, e, "/long")
		if _, err := io.ReadFull(p.open(t), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		p.Close()
		q := r.dial(t)
		q.ask(t, e, "/")
		same(t, q.answer(t), tokens("short", 20, 80))
		<-gone
	}
}

// The engine dies in the middle: the client gets every byte that was sent, and no
// terminator.
func TestEngineDies(t *testing.T) {
	for name, die := range map[string]func(*net.TCPConn){
		"close": func(c *net.TCPConn) { c.Close() },
		"reset": func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
		"inside a chunk": func(c *net.TCPConn) {
			send(c, "64\r\nhalf a chunk")
			pause()
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			e := newEngine(t, func(c net.Conn, _ *http.Request) bool {
				ok := send(c, head)
				for i := range 30 {
					ok = ok && send(c, chunk(token("s", i, 100)))
					if i == 0 {
						firstPause()
					}
					pause()
				}
				die(c.(*net.TCPConn))
				return false
			})
			p := r.dial(t)
			p.ask(t, e, "/")
			b, err := io.ReadAll(p.open(t))
			if err == nil {
				t.Error("the client saw a whole response")
			}
			want := tokens("s", 30, 100)
			if got := string(b); !strings.HasPrefix(got, want) {
				t.Errorf("client got %d bytes, %d were sent", len(got), len(want))
			}
			testutil.Eventually(t, "the response to end", func() bool { return r.ended(splice.Aborted, splice.Spliced) == 1 })
		})
	}
}

// The last message and the end of the connection come at once, and the numbers are
// still there to compare.
func TestEngineClosesBehindTheLastChunk(t *testing.T) {
	r := newRig(t)
	e := newEngine(t, func(c net.Conn, req *http.Request) bool {
		stream("s", 20, 100)(c, req)
		return false
	})
	for range 10 {
		p := r.dial(t)
		p.ask(t, e, "/")
		same(t, p.answer(t), tokens("s", 20, 100))
	}
	if n := r.ended(splice.Damaged, splice.Spliced); n != 0 {
		t.Errorf("%d sound responses were taken for damaged", n)
	}
	if n := r.ended(splice.Ended, splice.Spliced); n != 10 {
		t.Errorf("%d responses were spliced, want 10", n)
	}
}

// The same, told by "Connection: close", whereupon net/http closes first.
func TestConnectionClose(t *testing.T) {
	r := newRig(t)
	closing := strings.Replace(head, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
	e := newEngine(t, func(c net.Conn, req *http.Request) bool {
		ok := send(c, closing)
		for i := range 20 {
			ok = ok && send(c, chunk(token("s", i, 100)))
			if i == 0 {
				firstPause()
			}
			pause()
		}
		return ok && send(c, last) && false
	})
	for range 10 {
		p := r.dial(t)
		p.ask(t, e, "/")
		same(t, p.answer(t), tokens("s", 20, 100))
	}
	if n := r.ended(splice.Ended, splice.Spliced); n != 10 {
		t.Errorf("%d responses were spliced, want 10", n)
	}
}

// Framing that breaks after a splice is never dressed up as a whole response: the
// client sees an error, and nothing behind the break.
func TestBrokenFramingCutsTheClient(t *testing.T) {
	r := newRig(t)
	e := newEngine(t, func(c net.Conn, _ *http.Request) bool {
		ok := send(c, head)
		for i := range 20 {
			ok = ok && send(c, chunk(token("s", i, 100)))
			if i == 0 {
				firstPause()
			}
			pause()
		}
		return ok && send(c, "this is not a chunk\r\n", chunk("behind"), last)
	})
	p := r.dial(t)
	p.ask(t, e, "/")
	b, err := io.ReadAll(p.open(t))
	if err == nil {
		t.Fatal("the client saw a whole response")
	}
	if strings.Contains(string(b), "behind") {
		t.Error("bytes behind the break were delivered")
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("client: %v", err)
	}
}
