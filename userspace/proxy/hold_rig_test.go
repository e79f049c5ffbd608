package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/load"
)

const limit = time.Minute + 7*time.Millisecond // on no tick

// spied is a Fleet that notes who was sent, by the size of the prompt, and whether he
// might have been held.
type spied struct {
	*decide.Fleet
	mu      sync.Mutex
	sent    []int
	patient []bool
	before  func() // called where a request is sent that was held
}

func (s *spied) Route(r decide.Request, now decide.Instant) (decide.Ticket, decide.Decision) {
	t, d := s.Fleet.Route(r, now)
	if d.Reason != decide.ReasonNoRoom {
		s.mu.Lock()
		s.sent, s.patient = append(s.sent, r.Bytes), append(s.patient, r.MayWait)
		before := s.before
		s.mu.Unlock()
		if before != nil {
			before()
		}
	}
	return t, d
}

func (s *spied) order() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// queue is a rig that holds, with backends whose KV memory of a million tokens is full.
type queue struct {
	*rig
	t    *testing.T
	spy  *spied
	done []chan *http.Response // of each request, in order
}

// newQueue starts one in a bubble, with two backends that echo.
func newQueue(t *testing.T, n *pipes, change ...func(*Options)) *queue {
	q := bareQueue(t, n, change...)
	for _, name := range []string{"a", "b"} {
		q.add(name, echo)
	}
	q.poll(1)
	return q
}

func bareQueue(t *testing.T, n *pipes, change ...func(*Options)) *queue {
	q := &queue{t: t}
	change = append([]func(*Options){func(o *Options) {
		q.spy = &spied{Fleet: o.Router.(*decide.Fleet)}
		o.Router, o.Params.Hold = q.spy, limit
	}}, change...)
	if n != nil {
		q.rig = newPipedRig(t, n, change...)
	} else {
		q.rig = newRig(t, change...)
	}
	p := q.fleet.Params()
	p.Policy = decide.PricedSpread
	q.fleet.SetParams(p)
	lp := load.Default()
	lp.Window = time.Hour
	q.fleet.SetLoadParams(lp)
	return q
}

// streamingQueue has two backends whose answers are what is sent on pieces, and end when
// that is closed.
func streamingQueue(t *testing.T, n *pipes) (q *queue, pieces chan string) {
	t.Helper()
	q, pieces = bareQueue(t, n), make(chan string)
	for _, name := range []string{"a", "b"} {
		q.add(name, func(w http.ResponseWriter, r *http.Request) { events(w, r, pieces) })
	}
	return q, pieces
}

// poll sets the KV use of all backends, and wakes nobody.
func (q *queue) poll(use float64) {
	for _, b := range q.fleet.Snapshot(q.proxy.clock(), nil) {
		q.fleet.Observe(b.Slot, load.Sample{HasQueue: true, HasKV: true, KVUse: use, CapacityTok: 1e6}, q.proxy.clock())
	}
}

// ask sends a prompt of about so many tokens. Its answer comes in q.done.
func (q *queue) ask(ctx context.Context, tokens int, header ...string) {
	done := make(chan *http.Response, 1)
	q.done = append(q.done, done)
	text := fmt.Sprintf("%d %s", len(q.done), strings.Repeat("x", 4*tokens))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+q.addr+"/v1/chat/completions", strings.NewReader(chat(text)))
	if err != nil {
		q.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	go func() {
		defer close(done)
		if resp, err := q.client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			done <- resp
		}
	}()
	if q.pipes != nil {
		synctest.Wait()
	}
}

// held fails the test unless so many are held, which in a bubble are all that run.
func (q *queue) held(want int) {
	q.t.Helper()
	if got := q.proxy.Held(); got != want {
		q.t.Fatalf("%d are held, want %d", got, want)
	}
}

// ends fails the test unless every hold has ended as said, in order, and all is given
// back.
func (q *queue) ends(want ...ended) {
	q.t.Helper()
	for i, done := range q.done {
		if resp, ok := <-done; ok && resp.StatusCode != 200 && resp.StatusCode != 503 {
			q.t.Errorf("request %d: %d", i, resp.StatusCode)
		}
	}
	q.idle()
	q.ledger.mu.Lock()
	got := slices.Clone(q.ledger.holds)
	q.ledger.mu.Unlock()
	if !reflect.DeepEqual(got, want) {
		q.t.Errorf("holds ended as %v, want %v", got, want)
	}
	if c := q.fleet.Counts(); c.InFlight != 0 {
		q.t.Errorf("%d tickets in flight", c.InFlight)
	}
	h := &q.proxy.holding
	testutil.Eventually(q.t, "nobody looks any more", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return !h.running && h.line.Len() == 0
	})
	q.held(0)
}
