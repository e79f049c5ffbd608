package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is a paced stand-in of a model server on one TCP listener. It answers
// HTTP/1.1 with keep-alive and writes as uvicorn does: the head, then each event
// as one HTTP chunk in one write, then the terminating chunk in a write of its
// own. It knows nothing of the routers in front of it.
type Server struct {
	ln    net.Listener
	clock Clock
	wg    sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	closed  bool
	stopped bool
	stop    chan struct{} // closed while stopped
}

// Listen opens a server on addr and serves until Close.
func Listen(addr string) (*Server, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // model servers do not speak it, and a splice cannot take it
	ln, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{ln: ln, clock: NewClock(), conns: map[net.Conn]struct{}{}, stop: make(chan struct{})}
	s.wg.Go(s.accept)
	return s, nil
}

// Addr is host:port of the server.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Stop makes every stream finish now, whole, and every new one finish after its first token.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
	}
}

// Go ends Stop for the streams that begin from now on.
func (s *Server) Go() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		s.stopped = false
		s.stop = make(chan struct{})
	}
}

// Close closes the listener and all connections and waits for their goroutines.
func (s *Server) Close() {
	s.ln.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.Stop()
	s.wg.Wait()
}

func (s *Server) accept() {
	for {
		c, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: let some go
			continue
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serve(c)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// conn is what a connection keeps from request to request.
type conn struct {
	net.Conn
	r     *bufio.Reader
	body  []byte
	out   []byte
	timer *time.Timer
}

func (s *Server) serve(nc net.Conn) {
	c := &conn{Conn: nc, r: bufio.NewReader(nc), timer: time.NewTimer(time.Hour)}
	defer c.timer.Stop()
	for {
		req, err := http.ReadRequest(c.r)
		if err != nil {
			return
		}
		if c.body, err = readAll(c.body[:0], req.Body); err != nil {
			return
		}
		if err := s.answer(c, req); err != nil || req.Close {
			return
		}
	}
}

// readAll appends all of r to dst.
func readAll(dst []byte, r io.Reader) ([]byte, error) {
	for {
		if cap(dst)-len(dst) < 4<<10 {
			dst = append(make([]byte, 0, 2*cap(dst)+16<<10), dst...)
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// The small answers that a router may poll for, and the plain one.
const (
	modelsAnswer  = `{"object":"list","data":[{"id":"bench","object":"model","created":1700000000,"owned_by":"bench","max_model_len":131072}]}`
	metricsAnswer = "vllm:num_requests_running{model_name=\"bench\"} 0\nvllm:num_requests_waiting{model_name=\"bench\"} 0\nvllm:kv_cache_usage_perc{model_name=\"bench\"} 0\n"
	plainAnswer   = `{"id":"chatcmpl-0","object":"chat.completion","created":1700000000,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`
)

func (s *Server) answer(c *conn, req *http.Request) error {
	switch req.URL.Path {
	case "/v1/models":
		return c.plain(200, "application/json", modelsAnswer)
	case "/health":
		return c.plain(200, "application/json", "{}")
	case "/metrics":
		return c.plain(200, "text/plain; version=0.0.4", metricsAnswer)
	case Spec{}.Path(), Spec{Responses: true}.Path():
		spec, ok := ParseSpec(c.body)
		spec.Responses = req.URL.Path != Spec{}.Path()
		if !ok {
			return c.plain(400, "application/json", `{"error":{"message":"no bench spec in the body","code":400}}`)
		}
		if spec.Tokens == 0 {
			return c.plain(200, "application/json", plainAnswer)
		}
		return s.stream(c, spec)
	}
	return c.plain(404, "application/json", `{"detail":"Not Found"}`)
}

func (c *conn) plain(status int, kind, body string) error {
	c.out = fmt.Appendf(c.out[:0], "HTTP/1.1 %d %s\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: %s\r\n\r\n%s",
		status, http.StatusText(status), len(body), kind, body)
	_, err := c.Write(c.out)
	return err
}

// chunk writes c.out[chunkRoom:] as one HTTP chunk, in one write.
func (c *conn) chunk() error {
	const digits = "0123456789abcdef"
	n := len(c.out) - chunkRoom
	i := chunkRoom - 2
	copy(c.out[i:], "\r\n")
	for v := n; v > 0 || i == chunkRoom-2; v >>= 4 {
		i--
		c.out[i] = digits[v&15]
	}
	c.out = append(c.out, "\r\n"...)
	_, err := c.Write(c.out[i:])
	return err
}

// chunkRoom is what chunk needs before the bytes: a size and CRLF.
const chunkRoom = 10

func (c *conn) room() []byte { return append(c.out[:0], make([]byte, chunkRoom)...) }

// stream sends one response of spec.
func (s *Server) stream(c *conn, spec Spec) error {
	s.mu.Lock()
	stop := s.stop
	s.mu.Unlock()
	if _, err := c.Write([]byte("HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")); err != nil {
		return err
	}
	d, seq := spec.dialect(), uint32(0)
	send := func() error {
		c.out = d.event(c.room(), mark{spec.Stream, seq, s.clock.Now()}, spec.Bytes)
		seq++
		return c.chunk()
	}
	// The role and the first token come at once: that is the end of the prefill.
	for range 2 {
		if err := send(); err != nil {
			return err
		}
	}
	due := spec.first(s.clock.Now())
	for int(seq) <= spec.Tokens {
		wait := time.Duration(due - s.clock.Now())
		if spec.Hold > 0 && int(seq) > spec.Hold {
			wait = time.Duration(1 << 62)
		}
		c.timer.Reset(wait)
		stopped := false
		select {
		case <-stop:
			stopped = true
		case <-c.timer.C:
		}
		if stopped {
			break
		}
		if err := send(); err != nil {
			return err
		}
		due += int64(spec.Every)
	}
	c.out = d.end(c.room(), mark{spec.Stream, seq, s.clock.Now()})
	if err := c.chunk(); err != nil {
		return err
	}
	if d.done != "" {
		c.out = append(c.room(), d.done...)
		if err := c.chunk(); err != nil {
			return err
		}
	}
	_, err := c.Write([]byte("0\r\n\r\n"))
	return err
}

// first is when the token after the first is due. Streams that share a tick
// share it with all of the same pace, like the requests of one engine's batch.
func (s Spec) first(now int64) int64 {
	every := int64(s.Every)
	phase := int64(0)
	if s.Spread {
		phase = int64(uint64(s.Stream)*0x9e3779b97f4a7c15>>1) % every
	}
	return ((now-phase)/every+1)*every + phase
}
