package integration

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
)

// A soak is a crowd of clients before an agent that is replaced now and then.
type soak struct {
	t       *testing.T
	watched *watch
	engines []*engine
	current atomic.Pointer[agent]
	base    uint64 // first seed
	next    atomic.Int64
	refused atomic.Int64 // requests that came to an agent that was ending
	stayed  atomic.Int64
}

// TestWatermarkedStreams: every client gets its own bytes, whole and in order,
// with random lengths, sends, pauses, readers and departures, on connections that
// are used again, while agents are told to end and are replaced. A client that
// leaves is told to the engine at once.
func TestWatermarkedStreams(t *testing.T) {
	pins := bpffs(t) + "/tautline"
	s := &soak{t: t, watched: newWatch(), base: rand.Uint64() >> 1}
	var addrs []string
	for range 3 {
		e := startEngine(t, s.watched)
		s.engines = append(s.engines, e)
		addrs = append(addrs, e.addr())
	}
	s.current.Store(startAgent(t, pins, addrs, nil))

	var wg sync.WaitGroup
	for i := range *clients {
		wg.Go(func() { s.client(i) })
	}
	done := s.bystand(max(1, *clients/4))
	for i := range *restarts {
		mark := int64(*streams) * int64(i+1) / int64(*restarts+1)
		for s.next.Load() < mark && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		old := s.current.Load()
		began := time.Now()
		old.end()
		s.current.Store(startAgent(t, pins, addrs, nil))
		t.Logf("agent replaced after %d streams: it had drained and was back after %v", s.next.Load(), time.Since(began).Round(time.Millisecond))
	}
	wg.Wait()
	done()
	s.judge(pins)
}

// bystand has more clients ask the engines directly, until the function that it
// returns is called. How late an engine hears of their departure is the machine's
// doing and the test's own.
func (s *soak) bystand(n int) (end func()) {
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			c := &client{watched: s.watched, buf: make([]byte, 8<<10), direct: true}
			defer c.leave()
			for seed := s.base + uint64(i+1)<<52; !s.t.Failed(); seed++ {
				select {
				case <-stop:
					return
				case <-time.After(s.think(seed)):
				}
				if err := c.do(s.engines[i%len(s.engines)].addr(), newPlan(seed)); err != nil {
					s.t.Error("without an agent:", err)
					return
				}
			}
		})
	}
	return func() {
		close(stop)
		wg.Wait()
	}
}

// think is how long a client waits before it asks for a stream.
func (s *soak) think(seed uint64) time.Duration {
	return time.Duration(rand.New(rand.NewPCG(seed, 4)).Float64() * 2 * float64(*think))
}

// client asks until all streams have been asked for.
func (s *soak) client(i int) {
	c := &client{watched: s.watched, buf: make([]byte, 8<<10)}
	defer c.leave()
	time.Sleep(*think * time.Duration(i) / time.Duration(*clients)) // not all at once
	for {
		n := s.next.Add(1)
		if n > int64(*streams) || s.t.Failed() {
			return
		}
		for try := uint64(0); ; try++ {
			a := s.current.Load()
			seed := s.base + uint64(n) + try<<40
			p := newPlan(seed)
			err := c.do(a.addr, p)
			if errors.Is(err, errUnanswered) && a.leaving.Load() {
				// That is what ending means, but only for requests that had not been taken.
				if s.asked(seed) {
					s.t.Errorf("stream %x: an engine was asked, and the drain did not wait: %v", seed, err)
				}
				s.refused.Add(1)
				for s.current.Load() == a && !s.t.Failed() {
					time.Sleep(time.Millisecond)
				}
				continue
			}
			if err != nil {
				s.t.Error(err)
				return
			}
			if p.how == stays {
				s.stayed.Add(1)
			}
			time.Sleep(s.think(seed))
			break
		}
	}
}

func (s *soak) asked(seed uint64) bool {
	for _, e := range s.engines {
		if _, ok := e.asked.Load(seed); ok {
			return true
		}
	}
	return false
}

func (s *soak) judge(pins string) {
	t := s.t
	a := s.current.Load()
	st := a.idle()
	await(t, "the engines to be told of every departure", func() bool {
		s.watched.mu.Lock()
		defer s.watched.mu.Unlock()
		for seed := range s.watched.left {
			if !s.asked(seed) {
				delete(s.watched.left, seed) // it left before the agent had asked anybody
			}
		}
		return len(s.watched.left) == 0
	})
	s.watched.mu.Lock()
	defer s.watched.mu.Unlock()
	for _, w := range s.watched.wrong {
		t.Error(w)
	}
	t.Logf("%5d clients left without an agent: the engine's connection was closed after %v", len(s.watched.direct), s.watched.direct)
	// Two processes must get a CPU on the way, instead of one.
	machine := 2 * s.watched.direct.quantile(1)
	for how := closes; how < departures; how++ {
		d := s.watched.delays[how]
		t.Logf("%5d clients left, %s: after %v", len(d), how, d)
		if late := d.quantile(1) - machine; late > *abort {
			t.Errorf("%s: an engine was told %v later than can be laid to the machine", how, late)
		}
	}
	set, err := maps.Open(pins)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	counters, err := set.Counters()
	if err != nil {
		t.Fatal(err)
	}
	sent := int64(0)
	for _, e := range s.engines {
		sent += e.bytes.Load()
	}
	spliced := counters[bpf.Redirected]
	t.Logf("%d streams, %d of them read to their end, %d requests came to an agent that was ending; %d messages and %.1f %% of %d MB were spliced",
		*streams, s.stayed.Load(), s.refused.Load(), spliced.Events, 100*float64(spliced.Bytes)/float64(sent), sent>>20)
	t.Logf("responses of the last agent: %v", st.Splice.Outcomes)
	if spliced.Events == 0 {
		t.Error("nothing was spliced: the test shows nothing")
	}
	live, err := set.Live()
	if err != nil {
		t.Fatal(err)
	}
	if live[bpf.FlowSpliced] != 0 {
		t.Errorf("flows after everybody has left: %v", live)
	}
	a.end()
	for _, e := range s.engines {
		await(t, "the agent's connections to the engines to be closed", func() bool { return e.open() == 0 })
	}
}
