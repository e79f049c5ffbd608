package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Client is one keep-alive connection that asks for one stream after another.
// Not safe for concurrent use, but for Abort.
type Client struct {
	addr  string
	clock Clock
	check Checker
	conn  net.Conn
	r     *bufio.Reader
	buf   []byte
}

// NewClient returns a client of host:port. It connects when it is first used.
func NewClient(addr string, clock Clock) *Client {
	return &Client{addr: addr, clock: clock, buf: make([]byte, 8<<10)}
}

// Close closes the connection.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// Do sends body, which asks for s, and reads the answer to its end; each is
// called for every right event as soon as it was read. A failure to get a 200 is
// an error; what was wrong after that is in the Faults, whose text says what
// came first. When ctx ends, the connection is closed.
func (c *Client) Do(ctx context.Context, s Spec, body []byte, each func(Chunk)) (Faults, string, error) {
	if err := c.connect(ctx); err != nil {
		return Faults{}, "", err
	}
	conn := c.conn
	release := context.AfterFunc(ctx, func() { conn.Close() })
	defer release()
	resp, err := c.ask(s.Path(), body)
	if err != nil {
		c.Close()
		return Faults{}, "", err
	}
	c.check.Reset(s)
	for {
		n, rerr := resp.Body.Read(c.buf)
		if n > 0 {
			c.check.Feed(c.buf[:n], c.clock.Now(), each)
		}
		if rerr != nil {
			err = rerr
			break
		}
	}
	faults, first := c.check.Close()
	if !errors.Is(err, io.EOF) {
		if ctx.Err() != nil {
			c.Close()
			return Faults{}, "", ctx.Err()
		}
		if !faults.Any() {
			faults.Truncated++ // every event came, the end of the body did not
		}
		first = fmt.Sprintf("%s (%v)", first, err)
		c.Close()
	} else if resp.Close {
		c.Close()
	}
	return faults, first, nil
}

func (c *Client) connect(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	c.conn = conn
	if c.r == nil {
		c.r = bufio.NewReader(conn)
	} else {
		c.r.Reset(conn)
	}
	return nil
}

// ask sends the request and reads the head of a 200.
func (c *Client) ask(path string, body []byte) (*http.Response, error) {
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, c.addr, len(body))
	parts := net.Buffers{head, body} // one system call, no copy
	if _, err := parts.WriteTo(c.conn); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, fmt.Errorf("no head: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return nil, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return resp, nil
}
