package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// calls is a Splicer that writes down how it is used.
type calls struct {
	NoSplice
	mu     sync.Mutex
	log    []string
	end    error
	client net.Conn
	back   net.Conn
	info   ResponseInfo
}

func (c *calls) note(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, fmt.Sprintf(format, a...))
}

func (c *calls) Begin(client, back net.Conn, info ResponseInfo) SplicedResponse {
	c.note("begin")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client, c.back, c.info = client, back, info
	return (*called)(c)
}

type called calls

func (c *called) Flushed(n int64) { (*calls)(c).note("flushed %d", n) }
func (c *called) End() error      { (*calls)(c).note("end"); return c.end }
func (c *called) Abort()          { (*calls)(c).note("abort") }

// TestSplicerIsCalledInOrder: Flushed only from the first token on, with what has
// been delivered, and before each read; then End or Abort, once.
func TestSplicerIsCalledInOrder(t *testing.T) {
	for _, tc := range []struct {
		name   string
		end    error
		pieces []string
		want   string
	}{
		{"to its end", nil, []string{"event: response.created\n\n", "event: response.x.delta\n\n", "data: 123\n\n"}, "begin,flushed 50,flushed 61,end"},
		{"damaged", ErrDamaged, []string{"event: response.x.delta\n\n"}, "begin,flushed 25,end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &calls{end: tc.end}
			g := newRig(t, func(o *Options) { o.Splicer = s })
			pieces := make(chan string)
			g.add("a", func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
			resp, err := g.client.Post("http://"+g.addr+"/v1/responses", "application/json", strings.NewReader(`{"input":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range tc.pieces {
				pieces <- p
				if _, err := io.ReadFull(resp.Body, make([]byte, len(p))); err != nil {
					t.Fatal(err)
				}
			}
			close(pieces)
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if (err != nil) != (tc.end != nil) {
				t.Errorf("the client's read ended with %v", err)
			}
			g.idle()
			if got := strings.Join(s.log, ","); got != tc.want {
				t.Errorf("calls %s, want %s", got, tc.want)
			}
			if _, ok := s.client.(*net.TCPConn); !ok {
				t.Errorf("client connection is a %T", s.client)
			}
			if _, ok := s.back.(*net.TCPConn); !ok {
				t.Errorf("backend connection is a %T", s.back)
			}
			if want := (ResponseInfo{ClientHTTP11: true, BackendChunked: true, ClientChunked: true}); s.info != want {
				t.Errorf("info %+v", s.info)
			}
			if tc.end != nil {
				if got := g.last(1).Abort; got != AbortSplice {
					t.Errorf("abort %s", got)
				}
			}
		})
	}
}
