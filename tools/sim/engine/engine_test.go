package engine

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/sim/traffic"
)

// feed drives one engine with jobs that arrive at given times and returns the
// times of first tokens and ends by job.
type feed struct {
	first, done []Instant
	cached      []int
	order       []int
	check       func()
}

func (f *feed) FirstToken(j *traffic.Job, now Instant) {
	f.first[j.Index] = now
	f.cached[j.Index] = j.Cached
}

func (f *feed) Done(j *traffic.Job, now Instant) {
	f.done[j.Index] = now
	f.order = append(f.order, j.Index)
}

func drive(m Model, jobs []traffic.Job, check func()) *feed {
	f := &feed{first: make([]Instant, len(jobs)), done: make([]Instant, len(jobs)), cached: make([]int, len(jobs)), check: check}
	for i := 0; ; {
		next := m.Next()
		switch {
		case i < len(jobs) && jobs[i].Arrive <= next:
			m.Submit(&jobs[i], jobs[i].Arrive)
			i++
		case next != traffic.Never:
			m.Step(next, f)
		default:
			return f
		}
		if check != nil {
			check()
		}
	}
}

func randomJobs(rnd *rand.Rand, n int, gap time.Duration) []traffic.Job {
	jobs := make([]traffic.Job, n)
	at := Instant(0)
	for i := range jobs {
		j := &jobs[i]
		j.Index = i
		j.Reset()
		at += Instant(rnd.ExpFloat64() * float64(gap))
		j.Arrive = at
		id := uint64(rnd.IntN(4)) + 1
		j.Add(traffic.Segment{ID: id, Tokens: int(id) * 1000})
		for range rnd.IntN(3) {
			id = traffic.Mix(id, uint64(rnd.IntN(3)))
			j.Add(traffic.Segment{ID: id, Tokens: 200 + int(id%700)})
		}
		j.Output = 1 + rnd.IntN(300)
		j.Answer = traffic.Mix(id, uint64(i)+99)
	}
	return jobs
}

// In bulk or one by one, the decode iterations must give the same times.
func TestBulksChangeNothing(t *testing.T) {
	preempted := 0
	for seed := range uint64(12) {
		b := Qwen32B()
		b.Capacity = 6000 + int(seed)*3000
		bulk, single := NewBatched(b), NewBatched(b)
		single.single = true
		jobs, again := randomJobs(rand.New(rand.NewPCG(seed, 1)), 400, 300*time.Millisecond), randomJobs(rand.New(rand.NewPCG(seed, 1)), 400, 300*time.Millisecond)
		a, c := drive(bulk, jobs, nil), drive(single, again, nil)
		for i := range a.first {
			preempted += int(jobs[i].Preempted)
			if d := a.first[i] - c.first[i]; d > time.Millisecond || d < -time.Millisecond {
				t.Fatalf("seed %d job %d: first token %v in bulk, %v one by one", seed, i, a.first[i], c.first[i])
			}
			if d := a.done[i] - c.done[i]; d > time.Millisecond || d < -time.Millisecond {
				t.Fatalf("seed %d job %d: done %v in bulk, %v one by one", seed, i, a.done[i], c.done[i])
			}
			if a.cached[i] != c.cached[i] || jobs[i].Preempted != again[i].Preempted {
				t.Fatalf("seed %d job %d: cached %d, preempted %d times in bulk, %d and %d one by one",
					seed, i, a.cached[i], jobs[i].Preempted, c.cached[i], again[i].Preempted)
			}
		}
	}
	if preempted == 0 {
		t.Error("nobody was preempted: the test proves half of it")
	}
}

// The accounts of the cache must agree with a count over its nodes.
func TestCacheAccounts(t *testing.T) {
	b := Qwen32B()
	b.Capacity = 12000
	e := NewBatched(b)
	jobs := randomJobs(rand.New(rand.NewPCG(3, 3)), 1000, 200*time.Millisecond)
	f := drive(e, jobs, func() {
		c := e.cache
		used, pinned := 0, 0
		for id, n := range c.at {
			w := c.nodes[n]
			if w.id != id || w.held <= 0 {
				t.Fatalf("node %d of %d: holds %d", n, id, w.held)
			}
			used += w.held
			if w.pins > 0 {
				pinned += w.held
				if p := w.parent; p != root && c.nodes[p].pins == 0 {
					t.Fatal("a pinned node has a parent that may go")
				}
			}
		}
		if used != c.used || pinned != c.pinned {
			t.Fatalf("accounts say used %d pinned %d, nodes %d %d", c.used, c.pinned, used, pinned)
		}
		written := len(e.filling) // a token to come of each
		for _, j := range e.writing {
			written += j.Output - int(j.Work.Finish-e.steps) - int(j.Work.Kept)
		}
		if written != c.written {
			t.Fatalf("written %d, answers %d", c.written, written)
		}
		if used+written > c.capacity {
			t.Fatalf("%d tokens in a cache of %d", used+written, c.capacity)
		}
	})
	hits, preempted := 0, 0
	for i := range jobs {
		if f.done[i] == 0 {
			t.Fatalf("job %d never ended", i)
		}
		preempted += int(jobs[i].Preempted)
		if f.cached[i] > 0 {
			hits++
		}
	}
	if hits == 0 || hits == len(jobs) {
		t.Errorf("%d of %d jobs hit: the test proves nothing", hits, len(jobs))
	}
	if preempted == 0 {
		t.Error("nobody was preempted: the test proves nothing")
	}
	if e.cache.pinned != 0 || e.cache.written != 0 {
		t.Errorf("idle, but pinned %d written %d", e.cache.pinned, e.cache.written)
	}
}

func TestPrefillRateOfQwen(t *testing.T) {
	e := NewBatched(Qwen32B())
	jobs := make([]traffic.Job, 1)
	jobs[0].Reset()
	jobs[0].Add(traffic.Segment{ID: 1, Tokens: 8192})
	f := drive(e, jobs, nil)
	if s := f.first[0].Seconds(); s < 0.398 || s > 0.402 {
		t.Errorf("8192 tokens took %v s, want 0.40", s)
	}
}

func TestSecondPromptFindsTheFirst(t *testing.T) {
	e := NewBatched(Qwen32B())
	jobs := make([]traffic.Job, 3)
	for i := range jobs {
		jobs[i].Index = i
		jobs[i].Reset()
		jobs[i].Arrive = Instant(i) * 10 * time.Second
		jobs[i].Add(traffic.Segment{ID: 1, Tokens: 5000})
	}
	jobs[2].Segs[0].ID = 2
	jobs[2].Add(traffic.Segment{ID: 3, Tokens: 100})
	f := drive(e, jobs, nil)
	if f.cached[0] != 0 || f.cached[1] != 4999 || f.cached[2] != 0 {
		t.Errorf("cached %v, want 0, all but the last token, 0", f.cached)
	}
}

// An answer continues its prompt: the next turn finds both.
func TestNextTurnFindsTheAnswer(t *testing.T) {
	e := NewBatched(Qwen32B())
	jobs := make([]traffic.Job, 2)
	for i := range jobs {
		jobs[i].Index = i
		jobs[i].Reset()
		jobs[i].Arrive = Instant(i) * 100 * time.Second
		jobs[i].Add(traffic.Segment{ID: 1, Tokens: 5000})
		jobs[i].Output = 50
		jobs[i].Answer = 2
	}
	jobs[1].Add(traffic.Segment{ID: 2, Tokens: 50})
	jobs[1].Add(traffic.Segment{ID: 3, Tokens: 10})
	if f := drive(e, jobs, nil); f.cached[1] != 5050 {
		t.Errorf("the second turn found %d tokens, want 5050", f.cached[1])
	}
}

func TestToyQueue(t *testing.T) {
	e := NewToy(1000, 2)
	jobs := make([]traffic.Job, 5)
	for i, prefix := range []uint64{1, 1, 2, 3, 1} {
		jobs[i].Index = i
		jobs[i].Reset()
		jobs[i].Add(traffic.Segment{ID: prefix, Tokens: 900})
		jobs[i].Add(traffic.Segment{ID: 100 + uint64(i), Tokens: 100})
	}
	f := drive(e, jobs, nil)
	for i, want := range []float64{1, 1.1, 2.1, 3.1, 4.1} { // 3 drove 1 out of two slots
		if got := f.done[i].Seconds(); got < want-1e-6 || got > want+1e-6 {
			t.Errorf("job %d done at %v s, want %v", i, got, want)
		}
	}
}

func TestKillReturnsAll(t *testing.T) {
	b := Qwen32B()
	b.Capacity = 9000
	for _, m := range []Model{NewBatched(b), NewToy(1000, 2)} {
		jobs := randomJobs(rand.New(rand.NewPCG(5, 5)), 50, 0)
		for i := range jobs {
			m.Submit(&jobs[i], 0)
		}
		done := 0
		f := &feed{first: make([]Instant, 50), done: make([]Instant, 50), cached: make([]int, 50)}
		for range 3 {
			m.Step(m.Next(), f)
		}
		done = len(f.order)
		if dead := m.Kill(); len(dead)+done != 50 {
			t.Errorf("%T: %d ended and %d died of 50", m, done, len(dead))
		}
		if m.Next() != traffic.Never {
			t.Errorf("%T: has events after its death", m)
		}
	}
}
