package splice_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A peer is a client on a raw socket: it reads when the test says so.
type peer struct {
	*net.TCPConn
	br *bufio.Reader
}

func (r *rig) dial(t testing.TB) *peer {
	t.Helper()
	return r.dialAddr(t, r.addr)
}

func (r *rig) dialAddr(t testing.TB, addr string) *peer {
	t.Helper()
	var d net.Dialer
	d.SetMultipathTCP(false)
	c, err := d.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // only ends a hang
		t.Fatal(err)
	}
	return &peer{TCPConn: c.(*net.TCPConn), br: bufio.NewReader(c)}
}

// ask sends a request for the engine.
func (p *peer) ask(t testing.TB, e *engine, path string) {
	t.Helper()
	if _, err := fmt.Fprintf(p, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, e.addr); err != nil {
		t.Fatal(err)
	}
}

// open reads the response's head and returns its body.
func (p *peer) open(t testing.TB) io.ReadCloser {
	t.Helper()
	resp, err := http.ReadResponse(p.br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s", resp.Status)
	}
	return resp.Body
}

// answer reads a whole response.
func (p *peer) answer(t testing.TB) string {
	t.Helper()
	b, err := io.ReadAll(p.open(t))
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(b), err)
	}
	return string(b)
}

// token is the i-th token of a stream: it names the stream and itself, so that a
// foreign, lost, doubled or moved byte shows.
func token(stream string, i, size int) string {
	s := fmt.Sprintf("data: %s/%d ", stream, i)
	if pad := size - len(s) - 2; pad > 0 {
		s += strings.Repeat(string(rune('a'+i%26)), pad)
	}
	return s + "\n\n"
}

func tokens(stream string, n, size int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(token(stream, i, size))
	}
	return b.String()
}

func same(t testing.TB, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	t.Fatalf("got %d bytes, want %d; they differ at %d", len(got), len(want), i)
}

// firstPause lets the first token arrive and the agent arm behind it, on a machine that
// is busy otherwise too.
func firstPause() { time.Sleep(50 * time.Millisecond) }

// pause lets what was sent arrive, so that the next message is not under way when
// the agent arms. The tests are right without it, and prove less.
func pause() { time.Sleep(*rest) }

// An emulated machine needs longer: the tests that say how much is spliced assume
// that the agent is done with a message before the next one comes.
var rest = flag.Duration("rest", time.Millisecond, "how long a model server rests between two messages")

// stream returns a script that streams n tokens, each its own chunk and send.
func stream(name string, n, size int) script {
	return func(c net.Conn, _ *http.Request) bool {
		if !send(c, head) {
			return false
		}
		for i := range n {
			if !send(c, chunk(token(name, i, size))) {
				return false
			}
			if i == 0 {
				firstPause()
			}
			pause()
		}
		return send(c, last)
	}
}
