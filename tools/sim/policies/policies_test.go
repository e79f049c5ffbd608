package policies

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

func setup(backends int) Setup {
	s := Setup{Backends: backends, BlockTokens: 64, Memory: 1, Rate: 20480, Rand: rand.New(rand.NewPCG(1, 2))}
	for range backends {
		s.Capacity = append(s.Capacity, 100000)
	}
	return s
}

// job returns a request whose prompt is a prefix and some new tokens.
func job(index int, prefix uint64, tokens, fresh int) *traffic.Job {
	j := &traffic.Job{Index: index}
	j.Reset()
	j.Add(traffic.Segment{ID: prefix, Tokens: tokens})
	j.Add(traffic.Segment{ID: 1<<32 + uint64(index), Tokens: fresh})
	j.Output = 10
	j.SetKeys(64)
	return j
}

func route(c Chooser, j *traffic.Job) int {
	j.Slot = c.Route(j, time.Second)
	return j.Slot
}

func TestNamesAreUniqueAndFound(t *testing.T) {
	var names []string
	for _, p := range All() {
		if slices.Contains(names, p.Name) {
			t.Errorf("%s twice", p.Name)
		}
		names = append(names, p.Name)
	}
	if found, err := Find(names); err != nil || len(found) != len(names) {
		t.Errorf("%d of %d found, %v", len(found), len(names), err)
	}
	if _, err := Find([]string{"nosuch"}); err == nil {
		t.Error("an unknown name is found")
	}
	for _, tau := range []float64{-1, 1e16} {
		if _, err := WithTau("sticky-absolute", tau); err == nil {
			t.Errorf("tau %v is accepted", tau)
		}
	}
}

// Every policy: bookings end at zero, and a backend that refused is left alone
// until it answers a poll (decide's own: until its back-off is over).
func TestBooksBalance(t *testing.T) {
	for _, p := range All() {
		c := p.New(setup(4))
		var jobs []*traffic.Job
		used := map[int]bool{}
		for i := range 40 {
			j := job(i, uint64(i%7)+1, 2000, 300)
			used[route(c, j)] = true
			jobs = append(jobs, j)
		}
		if used[-1] || len(used) < 2 {
			t.Errorf("%s: used %v", p.Name, used)
		}
		for i, j := range jobs {
			if i%2 == 0 {
				c.FirstToken(j, 2*time.Second)
			}
			c.Done(j, 3*time.Second)
		}
		if b, ok := c.(interface{ inFlight() int }); ok && b.inFlight() != 0 {
			t.Errorf("%s: %d in flight at the end", p.Name, b.inFlight())
		}
		down := job(50, 1, 2000, 300)
		slot := route(c, down)
		c.Failed(down, 3*time.Second) // a failure from before the latest answer would say nothing
		if p.Name == "article-always-sticky" || p.Name == "article-saturating" {
			continue // the toy's servers do not die
		}
		for i := range 30 {
			if route(c, job(60+i, uint64(i), 2000, 300)) == slot {
				t.Errorf("%s: chose the backend that had just failed", p.Name)
				break
			}
		}
		c.Observe(slot, load.Sample{HasQueue: true}, 100*time.Second)
	}
}

func TestCacheAwareRules(t *testing.T) {
	c := CacheAware("x", 0.5, 4, 1.5, 1000).New(setup(3)).(*cacheAware)
	home := route(c, job(0, 1, 6400, 640))
	if got := route(c, job(1, 1, 6400, 640)); got != home {
		t.Error("a match above the threshold does not stay")
	}
	if got := route(c, job(2, 1, 640, 6400)); got == home {
		t.Error("a match below the threshold stays with the busiest")
	}
	for i := range 3 {
		route(c, job(3+i, 1, 6400, 640))
	}
	// Five against one and none: out of balance by more than 4 and by 1.5 times.
	if got := route(c, job(9, 1, 6400, 640)); got == home {
		t.Errorf("out of balance (%v), and still the longest match", c.active)
	}
}

func TestBoundedHashPassesOverTheBusy(t *testing.T) {
	c := BoundedHash(1.25).New(setup(4)).(*boundedHash)
	homes := map[int]int{}
	for i := range 40 {
		homes[route(c, job(i, 7, 6400, 64))]++
	}
	for slot, n := range homes {
		if n > 14 {
			t.Errorf("backend %d has %d of 40", slot, n)
		}
	}
	if len(homes) < 4 {
		t.Errorf("%v: a bound of 1.25 needs all four", homes)
	}
	idle := BoundedHash(1.25).New(setup(4)).(*boundedHash)
	first := route(idle, job(0, 7, 6400, 64))
	idle.Done(&traffic.Job{Slot: first}, 0)
	if again := route(idle, job(1, 7, 6400, 64)); again != first {
		t.Error("an idle fleet has no steady home for a prefix")
	}
}

// tree against a slice that is searched from end to end.
func TestTreeAgainstSlice(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	tr := newTree(20)
	var recent []key.Key // least recent first
	for range 3000 {
		n, from := 1+rnd.IntN(25), rnd.IntN(30)
		var keys []key.Key
		for i := range n {
			keys = append(keys, key.Key(from*3+i))
		}
		run := 0
		for run < n && slices.Contains(recent, keys[run]) {
			run++
		}
		if got := tr.run(keys); got != run {
			t.Fatalf("run %d, want %d", got, run)
		}
		tr.insert(keys)
		for i := min(n, 20) - 1; i >= 0; i-- {
			if at := slices.Index(recent, keys[i]); at >= 0 {
				recent = slices.Delete(recent, at, at+1)
			} else if len(recent) == 20 {
				recent = recent[1:]
			}
			recent = append(recent, keys[i])
		}
		if len(tr.at) != len(recent) {
			t.Fatalf("%d keys, want %d", len(tr.at), len(recent))
		}
	}
}

// told gives one agent the decision of another and returns the teller, the listener
// and the note.
func told(t *testing.T, j *traffic.Job) (listener Peer, n *Note) {
	t.Helper()
	s := setup(2)
	p := Own("priced", decide.Priced, nil)
	teller := p.New(s).(Peer)
	s.Rand = rand.New(rand.NewPCG(3, 4))
	listener = p.New(s).(Peer)
	route(teller, j)
	note := teller.Note(j)
	note.ID, note.Keys = 1, slices.Clone(j.Keys)
	listener.Told(&note, time.Second)
	return listener, &note
}

func uncached(c Chooser, slot int) int64 {
	for _, b := range c.(*fleet).Snapshot(2*time.Second, nil) {
		if b.Slot == slot {
			return b.Uncached
		}
	}
	return -1
}

// No agent sees the first token of an answer that is not streamed, so the one that was
// told of it must learn from the polls that its prompt is filled, too.
func TestToldOfAnUnstreamedAnswer(t *testing.T) {
	j := job(0, 1, 2000, 300)
	j.Stream = false
	listener, n := told(t, j)
	if got := uncached(listener, n.Slot); got != 2300 {
		t.Fatalf("%d tokens booked of 2300", got)
	}
	listener.Observe(n.Slot, load.Sample{Running: 1, HasQueue: true}, 2*time.Second)
	if got := uncached(listener, n.Slot); got != 0 {
		t.Errorf("%d tokens are still booked though nobody waits there", got)
	}
}

// A request that died with its backend leaves nothing there.
func TestToldOfAFailure(t *testing.T) {
	j := job(0, 1, 2000, 300)
	listener, n := told(t, j)
	listener.ToldFailed(n, 2*time.Second)
	if got := uncached(listener, n.Slot); got != 0 {
		t.Errorf("%d tokens are still booked", got)
	}
	_, cs := listener.(*fleet).Explain(listener.(*fleet).request(j), 3*time.Second)
	if got := cs[n.Slot].Run; got != 0 {
		t.Errorf("%d keys are believed where the backend died before it answered", got)
	}
}

// The blend of llm-d follows the latest poll, where the agent's remembers the worst.
func TestTheBlendOfLLMDForgetsAQueue(t *testing.T) {
	for name, forgets := range map[string]bool{"llm-d-blend": true, "weighted-blend": false} {
		found, err := Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		s := setup(2)
		s.Polls = time.Second
		c := found[0].New(s).(*fleet)
		for i, waiting := range []int{9, 0} {
			c.Observe(0, load.Sample{Waiting: waiting, HasQueue: true}, Instant(i)*time.Second)
			c.Observe(1, load.Sample{Waiting: 3, HasQueue: true}, Instant(i)*time.Second)
		}
		_, cs := c.Explain(c.request(job(0, 1, 2000, 300)), 1500*time.Millisecond)
		if is := cs[0].Queue == 0; is != forgets || cs[1].Queue != 3 {
			t.Errorf("%s: queues of %d and %d", name, cs[0].Queue, cs[1].Queue)
		}
	}
}

// llm-d's own form explores nothing, holds to the limit, and takes another one.
func TestWhatLLMDShips(t *testing.T) {
	for _, name := range []string{"llm-d", "llm-d-active"} {
		found, err := Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		low, err := WithTau(name, 5000)
		if err != nil {
			t.Fatal(err)
		}
		for want, p := range map[int64]Policy{Tau: found[0], 5000: low} {
			params := p.New(setup(3)).(*fleet).Params()
			if params.Exploration != 0 || params.Tau() != want || params.TauCompare != decide.Gap || params.Threshold != 0.8 {
				t.Errorf("%s, tau %d: %+v", name, want, params)
			}
			if is := params.Load == decide.ActiveRequests; is != (name == "llm-d-active") {
				t.Errorf("%s: load %v", name, params.Load)
			}
		}
	}
}
