package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An engine is a model server that sends plans, each in its own way: several
// events in a send, an event in several, pauses. It watches its connections while
// it sends, as engines do that abort a generation nobody waits for.
type engine struct {
	ln      net.Listener
	wg      sync.WaitGroup
	watched *watch
	bytes   atomic.Int64 // of chunks, sent
	asked   sync.Map     // seed -> struct{}: requests that came

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// watch is what the engines see of the clients' departures.
type watch struct {
	mu     sync.Mutex
	left   map[uint64]departing // by seed
	delays [departures]delays   // until the engine's connection was closed
	direct delays               // the same where no agent was between, however they left
	wrong  []string             // connections that were closed under a stream that nobody left
}

// departing is a client that has begun to leave.
type departing struct {
	at     time.Time
	direct bool
}

type delays []time.Duration

// quantile returns the delay that the share q of all does not exceed.
func (d delays) quantile(q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))].Round(10 * time.Microsecond)
}

func (d delays) String() string {
	return fmt.Sprintf("%v in the middle, p99 %v, max %v", d.quantile(0.5), d.quantile(0.99), d.quantile(1))
}

// leave is called by the client right before it leaves.
func (w *watch) leave(seed uint64, direct bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left[seed] = departing{time.Now(), direct}
}

// gone is called by the engine when the connection closed under a stream that it
// was asked for at the time given: no engine hears of a departure before that.
func (w *watch) gone(p *plan, asked time.Time) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	l, ok := w.left[p.seed]
	if !ok {
		w.wrong = append(w.wrong, fmt.Sprintf("stream %x: closed, though its client had not left (it %s)", p.seed, p.how))
		return
	}
	delete(w.left, p.seed)
	if asked.After(l.at) {
		l.at = asked
	}
	d := &w.delays[p.how]
	if l.direct {
		d = &w.direct
	}
	*d = append(*d, now.Sub(l.at))
}

func newWatch() *watch { return &watch{left: map[uint64]departing{}} }

func startEngine(t *testing.T, w *watch) *engine {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{ln: ln, watched: w, conns: map[net.Conn]struct{}{}}
	e.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns[c] = struct{}{}
			e.mu.Unlock()
			e.wg.Go(func() {
				e.serve(c)
				c.Close()
				e.mu.Lock()
				delete(e.conns, c)
				e.mu.Unlock()
			})
		}
	})
	t.Cleanup(e.close)
	return e
}

func (e *engine) addr() string { return e.ln.Addr().String() }

func (e *engine) close() {
	e.ln.Close()
	e.mu.Lock()
	for c := range e.conns {
		c.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}

// open is how many connections the agent holds to it.
func (e *engine) open() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

const (
	modelsText = `{"object":"list","data":[{"id":"soak","object":"model"}]}`
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)

func (e *engine) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		switch req.URL.Path {
		case "/v1/models":
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(modelsText), modelsText)
			continue
		case "/v1/chat/completions":
		default:
			fmt.Fprint(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		var seed uint64
		if i := bytes.Index(body, []byte(`"soak `)); i < 0 {
			return
		} else if _, err := fmt.Sscanf(string(body[i:]), `"soak %d.`, &seed); err != nil {
			return
		}
		asked := time.Now()
		e.asked.Store(seed, struct{}{})
		s := &sending{e: e, c: c, p: newPlan(seed), gone: make(chan struct{})}
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			if _, err := r.Peek(1); err != nil { // returns when the next request comes
				close(s.gone)
				if !s.whole.Load() {
					e.watched.gone(s.p, asked)
				}
			}
		}()
		ok := s.run()
		if !ok {
			c.Close()
		}
		<-watching
		if !ok {
			return
		}
	}
}

// A sending is one stream on its way.
type sending struct {
	e     *engine
	c     net.Conn
	p     *plan
	gone  chan struct{} // closed when the connection is
	whole atomic.Bool   // everything but the last message has been sent: it may be closed any time
}

// run sends the stream. The one whose client will leave does not end before that.
func (s *sending) run() bool {
	p := s.p
	how := rand.New(rand.NewPCG(p.seed, 2))
	headFirst := how.IntN(2) == 0 // it does not wait for the prefill
	if !headFirst && !s.pause(p.prefill) {
		return false
	}
	if p.how == earlier {
		return s.hold()
	}
	if !s.send(streamHead) {
		return false
	}
	if p.how == early {
		return (headFirst || s.send(chunk(": wait\n\n"))) && s.hold()
	}
	if headFirst && !s.pause(p.prefill) {
		return false
	}
	var pending []byte
	from := 0
	for _, end := range p.events {
		pending = append(pending, chunk(string(p.body[from:end]))...)
		from = end
		if how.IntN(10) == 0 {
			continue // with the next one
		}
		if how.IntN(20) == 0 {
			cut := how.IntN(len(pending))
			if !s.send(string(pending[:cut])) {
				return false
			}
			pending = pending[cut:]
		}
		if !s.send(string(pending)) {
			return false
		}
		pending = pending[:0]
		wait := 200 * time.Microsecond
		switch how.IntN(40) {
		case 0:
			wait = time.Duration(how.IntN(200)) * time.Millisecond
		case 1, 2, 3, 4, 5:
			wait = time.Duration(how.IntN(4000)) * time.Microsecond
		case 6, 7, 8, 9, 10, 11, 12, 13, 14, 15:
			wait = 0
		}
		if !s.pause(wait) {
			return false
		}
	}
	if p.how != stays {
		return s.send(string(pending)) && s.hold()
	}
	s.whole.Store(true)
	return s.send(string(pending) + "0\r\n\r\n")
}

func (s *sending) send(text string) bool {
	if text == "" {
		return true
	}
	n, err := io.WriteString(s.c, text)
	s.e.bytes.Add(int64(n))
	return err == nil
}

// pause returns false when the connection was closed meanwhile.
func (s *sending) pause(d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-s.gone:
		return false
	case <-time.After(d):
		return true
	}
}

// hold waits until the connection is closed.
func (s *sending) hold() bool {
	<-s.gone
	return false
}

func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }
