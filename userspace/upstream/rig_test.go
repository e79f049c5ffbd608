package upstream

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// rig is a Transport in front of a server that the test plays.
type rig struct {
	*testing.T
	t     *Transport
	dials atomic.Int64
}

// newRig serves each connection with serve, which gets its number.
func newRig(t *testing.T, serve func(c net.Conn, br *bufio.Reader, n int)) *rig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c, bufio.NewReader(c), n)
			}()
		}
	}()
	g := &rig{T: t}
	var d net.Dialer
	g.t = &Transport{Addr: ln.Addr().String(), MaxHead: 1 << 16, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		g.dials.Add(1)
		return d.DialContext(ctx, network, addr)
	}}
	t.Cleanup(func() {
		g.t.Close()
		_ = ln.Close()
		<-done
	})
	return g
}

// answers serves requests with one text after another, and the last again and again.
func answers(texts ...string) func(net.Conn, *bufio.Reader, int) {
	return func(c net.Conn, br *bufio.Reader, _ int) {
		for i := 0; ; i++ {
			r, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			if _, err := io.WriteString(c, texts[min(i, len(texts)-1)]); err != nil {
				return
			}
		}
	}
}

func (g *rig) request(method string, body io.Reader) *http.Request {
	g.Helper()
	r, err := http.NewRequestWithContext(g.Context(), method, "http://"+g.t.Addr+"/x", body)
	if err != nil {
		g.Fatal(err)
	}
	return r
}

// memory is a body as bytes.Reader is one, with a Close.
type memory struct {
	*bytes.Reader
	closed atomic.Bool
}

func (m *memory) Close() error { m.closed.Store(true); return nil }

func (g *rig) post(n int) (*http.Request, *memory) {
	m := &memory{Reader: bytes.NewReader(bytes.Repeat([]byte("x"), n))}
	r := g.request(http.MethodPost, nil)
	r.Body, r.ContentLength = m, int64(n)
	return r, m
}

// read sends r and reads the answer to its end.
func (g *rig) read(r *http.Request) (*http.Response, string, error) {
	resp, err := g.t.RoundTrip(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

func (g *rig) idle() int {
	g.t.mu.Lock()
	defer g.t.mu.Unlock()
	return len(g.t.idle)
}

const (
	plain   = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\nX-End: yes\r\n\r\n"
)
