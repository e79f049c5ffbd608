package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tautline/tautline/tools/bench/stream"
	"github.com/tautline/tautline/tools/quantile"
)

// fleet is a number of clients that each keep one stream going.
type fleet struct {
	b       *bench
	addr    string
	spec    func(client, turn int) stream.Spec // all but the watermark
	body    int                                // bytes of a request
	readyAt uint32                             // number of the first response's event that makes a client ready
	room    int                                // chunks that a client is expected to see in the window
	ready   chan struct{}                      // closed when all clients are

	open     atomic.Bool // the window, in which is counted what the report shows
	stopping atomic.Bool
	waiting  atomic.Int64
	wg       sync.WaitGroup
	clients  []*member
}

// member is one client's books. Only its goroutine writes; read after wait.
type member struct {
	latencies []time.Duration // of the chunks in the window
	answers   int             // responses that ended in the window
	ttft      []time.Duration // request to first token, of responses that began in the window
	all       int             // chunks
	tailWire  int64           // bytes on the wire after each response's first chunk
	responses int
	faults    stream.Faults
	failed    int
	first     string
}

// giveUp is how often in a row a client may fail before it stops trying.
const giveUp = 5

// startFleet starts n clients, not all at once: a burst of connections measures
// nobody's listen queue here.
func (b *bench) startFleet(ctx context.Context, f *fleet, n int) {
	f.b = b
	f.ready = make(chan struct{})
	f.waiting.Store(int64(n))
	for range n {
		f.clients = append(f.clients, &member{latencies: make([]time.Duration, 0, f.room)})
	}
	first := b.mark
	b.mark = (first + uint32(n)) % maxMark
	for i, m := range f.clients {
		if i%20 == 19 {
			time.Sleep(5 * time.Millisecond)
		}
		f.wg.Go(func() { f.run(ctx, m, i, first) })
	}
}

// maxMark bounds the part of a watermark that tells clients apart.
const maxMark = 1 << 20

// watermark of a client's turn in the fleet whose marks begin at first. Its lower
// part tells clients apart, its upper part a client's turns, so that responses
// that could be mixed up, on one connection or at one time, have different ones.
func watermark(first uint32, client, turn int) uint32 {
	return (first+uint32(client))%maxMark + uint32(turn)*maxMark
}

// run keeps one client's stream going until the fleet stops.
func (f *fleet) run(ctx context.Context, m *member, i int, first uint32) {
	c := stream.NewClient(f.addr, f.b.clock)
	defer c.Close()
	ready := sync.OnceFunc(func() {
		if f.waiting.Add(-1) == 0 {
			close(f.ready)
		}
	})
	defer ready()
	failures := 0
	for turn := 0; !f.stopping.Load() && ctx.Err() == nil; turn++ {
		s := f.spec(i, turn)
		s.Stream = watermark(first, i, turn)
		s.Responses = f.b.API == APIResponses
		body := s.Body(f.body)
		begin, counted := time.Now(), f.open.Load()
		faults, what, err := c.Do(ctx, s, body, func(ch stream.Chunk) {
			if ch.Seq == 1 && counted {
				m.ttft = append(m.ttft, time.Since(begin))
			}
			if ch.Seq >= f.readyAt {
				ready()
			}
			if ch.Seq > 0 {
				m.tailWire += int64(ch.Wire)
			}
			m.all++
			if f.open.Load() {
				m.latencies = append(m.latencies, ch.Latency)
			}
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			m.fail(err.Error())
			if failures++; failures == giveUp {
				return
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		failures = 0
		m.responses++
		m.tailWire += int64(s.DoneWireBytes())
		m.faults.Add(faults)
		if m.first == "" {
			m.first = what
		}
		if f.open.Load() {
			m.answers++
		}
	}
}

func (m *member) fail(why string) {
	m.failed++
	if m.first == "" {
		m.first = why
	}
}

// Bounds of a round's beginning and end. A router that needs longer fails.
const (
	readyTimeout = 60 * time.Second
	endTimeout   = 20 * time.Second
)

// await waits until every client is ready, or has given up.
func (f *fleet) await(ctx context.Context) error {
	select {
	case <-f.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(readyTimeout):
		return fmt.Errorf("%d of %d streams did not begin within %s", f.waiting.Load(), len(f.clients), readyTimeout)
	}
}

// finish lets every stream end whole and adds up the books. Clients whose stream
// does not end are cut off by cancel and counted as failed.
func (f *fleet) finish(cancel context.CancelFunc) (member, error) {
	f.stopping.Store(true)
	if err := f.b.server.Stop(); err != nil {
		cancel()
		f.wg.Wait()
		return member{}, err
	}
	done := make(chan struct{})
	go func() { f.wg.Wait(); close(done) }()
	late := false
	select {
	case <-done:
	case <-time.After(endTimeout):
		late = true
	}
	cancel()
	<-done
	sum := f.sum()
	if late {
		sum.fail(fmt.Sprintf("streams did not end within %s after the server ended them", endTimeout))
	}
	return sum, f.b.server.Go()
}

func (f *fleet) sum() (s member) {
	for _, m := range f.clients {
		s.latencies = append(s.latencies, m.latencies...)
		s.ttft = append(s.ttft, m.ttft...)
		s.answers += m.answers
		s.all += m.all
		s.tailWire += m.tailWire
		s.responses += m.responses
		s.faults.Add(m.faults)
		s.failed += m.failed
		if s.first == "" {
			s.first = m.first
		}
	}
	slices.Sort(s.latencies)
	slices.Sort(s.ttft)
	return s
}

// at is the q-quantile of sorted d in microseconds.
func at(d []time.Duration, q float64) float64 { return micros(quantile.Of(d, q)) }
