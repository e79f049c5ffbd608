// Package load sends requests the way clients of a model server do and measures
// what they feel: time to first token, gaps, totals, cached tokens. It is a
// client; the package of the same name below userspace keeps the agent's books.
package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Request is one request to send.
type Request struct {
	Path string // "/v1/chat/completions"
	Body []byte // JSON
	Kind string // free label that results can be grouped by
}

// Result is what one request felt like.
type Result struct {
	Kind             string
	Status           int           // 0 when no head came
	TTFT             time.Duration // request written to first body byte with a token
	Total            time.Duration // to the end of the body
	Chunks           int           // reads of the body
	Bytes            int64
	PromptTokens     int // usage.prompt_tokens, 0 when not told
	CachedTokens     int // usage.prompt_tokens_details.cached_tokens
	CompletionTokens int
	Err              error
}

// OK says whether the answer was a 2xx that came whole.
func (r Result) OK() bool { return r.Err == nil && r.Status/100 == 2 }

// Client sends requests to one base URL. Use one per test run; Close frees its connections.
type Client struct {
	base     string
	http     *http.Client
	received atomic.Int64
}

// NewClient returns a client of base with room for conns connections. It keeps
// connections alive and never uses MPTCP, which a splice cannot take.
func NewClient(base string, conns int) *Client {
	d := &net.Dialer{Timeout: 5 * time.Second}
	d.SetMultipathTCP(false)
	c := &Client{base: base}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return counted{conn, &c.received}, nil
		},
		MaxIdleConns:        conns,
		MaxIdleConnsPerHost: conns,
		DisableCompression:  true,
	}}
	return c
}

// Received returns the bytes that have come on all connections so far: heads, bodies
// and their framing.
func (c *Client) Received() int64 { return c.received.Load() }

// counted counts what is read.
type counted struct {
	net.Conn
	read *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do sends one request and reads its answer to the end.
func (c *Client) Do(ctx context.Context, q Request) Result {
	r := Result{Kind: q.Kind}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+q.Path, bytes.NewReader(q.Body))
	if err != nil {
		r.Err = err
		return r
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		r.Err, r.Total = err, time.Since(start)
		return r
	}
	defer resp.Body.Close()
	r.Status = resp.StatusCode
	var tail []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if r.TTFT == 0 {
				r.TTFT = time.Since(start)
			}
			r.Chunks++
			r.Bytes += int64(n)
			tail = keepTail(tail, buf[:n])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.Err = err
			break
		}
	}
	r.Total = time.Since(start)
	r.usage(tail)
	if r.Err == nil && r.Status/100 != 2 {
		r.Err = fmt.Errorf("status %d: %.200s", r.Status, tail)
	}
	return r
}

// tailBytes bounds what is kept of a body to find its usage in.
const tailBytes = 8 << 10

func keepTail(tail, b []byte) []byte {
	tail = append(tail, b...)
	if over := len(tail) - tailBytes; over > tailBytes {
		tail = append(tail[:0], tail[over:]...)
	}
	return tail
}

// usage finds the last usage object of a body or of an event stream.
func (r *Result) usage(tail []byte) {
	i := bytes.LastIndex(tail, []byte(`"usage":{`))
	if i < 0 {
		return
	}
	var u struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		Details          struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	if json.NewDecoder(bytes.NewReader(tail[i+len(`"usage":`):])).Decode(&u) == nil {
		r.PromptTokens, r.CachedTokens, r.CompletionTokens = u.PromptTokens, u.Details.CachedTokens, u.CompletionTokens
	}
}

// Closed runs n clients in a closed loop, each sending what next returns until
// it returns false or ctx ends, and calls done for every result, one at a time.
// next gets the client's number and how many requests that client sent so far.
func Closed(ctx context.Context, c *Client, n int, next func(client, turn int) (Request, bool), done func(Result)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		wg.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				q, ok := next(i, turn)
				if !ok {
					return
				}
				r := c.Do(ctx, q)
				if ctx.Err() != nil {
					return // cut off by the end of the run, not a result
				}
				mu.Lock()
				done(r)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}
