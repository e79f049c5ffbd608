package integration

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tautline/tautline/agent/telemetry"
)

// A client asks for one stream after another and keeps its connection as long as
// it reads to the end.
type client struct {
	watched *watch
	addr    string
	conn    *net.TCPConn
	r       *bufio.Reader
	buf     []byte
	reached map[int]func() // what to call once so many bytes of the body have come
	direct  bool           // it asks an engine, not the agent
}

// errUnanswered says that no byte of an answer came.
var errUnanswered = errors.New("no answer")

// do plays the client's part of a plan. nil: every byte that came was the right
// one, and all came where the client stayed. It wraps errUnanswered when the
// agent closed the connection before it answered.
func (c *client) do(addr string, p *plan) error {
	if addr != c.addr {
		c.leave()
		c.addr = addr
	}
	if c.conn == nil {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return fmt.Errorf("%w: %v", errUnanswered, err)
		}
		c.conn, c.r = conn.(*net.TCPConn), bufio.NewReader(conn)
	}
	if _, err := c.conn.Write(p.ask(addr)); err != nil {
		c.leave()
		return fmt.Errorf("%w: %v", errUnanswered, err)
	}
	if p.how == earlier {
		time.Sleep(time.Duration(p.seed%20) * time.Millisecond)
		c.watched.leave(p.seed, c.direct)
		c.leave()
		return nil
	}
	if _, err := c.r.Peek(1); err != nil {
		c.leave()
		return fmt.Errorf("%w: %v", errUnanswered, err)
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.leave()
		return fmt.Errorf("head: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		c.leave()
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	if err := c.read(p, resp); err != nil {
		c.leave()
		return err
	}
	return nil
}

// read compares the body with the plan's while it comes.
func (c *client) read(p *plan, resp *http.Response) error {
	if p.how == early {
		c.watched.leave(p.seed, c.direct)
		c.leave()
		return nil
	}
	how := rand.New(rand.NewPCG(p.seed, 3))
	got := 0
	for {
		if p.how != stays && got >= p.after {
			return c.depart(p, resp.Body, got)
		}
		n, err := resp.Body.Read(c.buf[:1+how.IntN(len(c.buf))])
		if e := p.compare(got, c.buf[:n]); e != nil {
			return e
		}
		got += n
		if f := c.reached[got]; f != nil && n > 0 {
			f()
		}
		switch {
		case errors.Is(err, io.EOF):
			if got != len(p.body) {
				return fmt.Errorf("stream %x: ended after %d of %d bytes", p.seed, got, len(p.body))
			}
			if resp.Close {
				c.leave()
			}
			return nil
		case err != nil:
			return fmt.Errorf("stream %x: after %d of %d bytes: %w", p.seed, got, len(p.body), err)
		}
		if p.slow && how.IntN(4) == 0 {
			time.Sleep(time.Duration(how.IntN(10)) * time.Millisecond)
		}
	}
}

// A foreignError says that a client got a byte that is not its own.
type foreignError struct{ text string }

func (e *foreignError) Error() string { return e.text }

// compare wants b at this place of the body.
func (p *plan) compare(at int, b []byte) error {
	if at+len(b) <= len(p.body) && bytes.Equal(b, p.body[at:at+len(b)]) {
		return nil
	}
	for i, x := range b {
		if at+i >= len(p.body) || x != p.body[at+i] {
			b = b[max(0, i-40):min(len(b), i+120)]
			return &foreignError{fmt.Sprintf("stream %x: byte %d of %d is not its own: ...%q", p.seed, at+i, len(p.body), b)}
		}
	}
	return nil
}

// depart leaves as planned.
func (c *client) depart(p *plan, body io.Reader, got int) error {
	defer c.leave()
	c.watched.leave(p.seed, c.direct)
	switch p.how {
	case resets:
		return c.conn.SetLinger(0)
	case halfCloses:
		if err := c.conn.CloseWrite(); err != nil {
			return err
		}
		for {
			n, err := body.Read(c.buf)
			if e := p.compare(got, c.buf[:n]); e != nil {
				return e
			}
			got += n
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("stream %x: an end was put to a stream that had none", p.seed)
			}
			if err != nil {
				return nil
			}
		}
	}
	return nil
}

func (c *client) leave() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// wholes asks for n streams, one after the other on one connection, and reads them
// to their end. Most must have been spliced.
func wholes(t *testing.T, a *agent, e *engine, n uint64) telemetry.Status {
	t.Helper()
	st := exact(t, a, e, n)
	if st.Splice.Outcomes["ended/spliced"] < n/2 {
		t.Errorf("responses ended %v, want most of %d spliced", st.Splice.Outcomes, n)
	}
	return st
}

// exact reads n streams to their ends, one after the other.
func exact(t *testing.T, a *agent, e *engine, n uint64) telemetry.Status {
	t.Helper()
	c := &client{watched: e.watched, buf: make([]byte, 8<<10)}
	defer c.leave()
	for seed, asked := rand.Uint64()>>1, uint64(0); asked < n; seed++ {
		p := newPlan(seed)
		if p.how != stays {
			continue
		}
		asked++
		if err := c.do(a.addr, p); err != nil {
			t.Fatal(err)
		}
	}
	return a.idle()
}
