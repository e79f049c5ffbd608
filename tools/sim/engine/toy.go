package engine

import (
	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/load"
)

// Toy is the model of the article: one queue, served at a fixed number of
// prompt tokens per second, and a cache of a few whole prefixes. A prefix is a
// job's first segment. What is cached is decided when the job arrives, so the
// router that sees it sees the truth. There is no decode: the first token is
// the end.
type Toy struct {
	perToken float64 // ns
	slots    []uint64
	limit    int
	queue    []toyJob // queue[head:] wait or are served
	head     int
	free     Instant // when the queue is empty
	warm     int     // queue[:warm] were looked at
	warmed   Instant // what was read there; kept so that the loads stay
}

// toyJob is a job with the time of its end: looking at it must not touch the
// job, which in a backlog is in no cache any more.
type toyJob struct {
	*traffic.Job
	end Instant
}

// NewToy returns an engine of a rate in prompt tokens/s with a number of
// prefix slots.
func NewToy(rate float64, slots int) *Toy {
	return &Toy{perToken: 1e9 / rate, limit: slots}
}

// Submit implements Model.
func (t *Toy) Submit(j *traffic.Job, now Instant) {
	j.Cached = 0
	if len(j.Segs) > 1 && t.touch(j.Segs[0].ID) {
		j.Cached = j.Segs[0].Tokens
	}
	t.free = max(t.free, now) + Instant(float64(j.Prompt-j.Cached)*t.perToken)
	t.queue = append(t.queue, toyJob{j, t.free})
}

// touch makes the prefix the most recent one and says whether it was there.
func (t *Toy) touch(id uint64) bool {
	at, hit := len(t.slots), false
	for i, s := range t.slots {
		if s == id {
			at, hit = i, true
			break
		}
	}
	switch {
	case hit:
	case t.limit == 0:
		return false
	case at < t.limit:
		t.slots = append(t.slots, id)
	default:
		at = t.limit - 1
	}
	copy(t.slots[1:at+1], t.slots[:at])
	t.slots[0] = id
	return hit
}

// Next implements Model.
func (t *Toy) Next() Instant {
	if t.head == len(t.queue) {
		return traffic.Never
	}
	return t.queue[t.head].end
}

// Step implements Model.
func (t *Toy) Step(now Instant, events Events) {
	j := t.queue[t.head].Job
	t.queue[t.head].Job = nil
	if t.head++; t.head == len(t.queue) {
		t.queue, t.head, t.warm = t.queue[:0], 0, 0
	} else if t.head > 1024 && 2*t.head > len(t.queue) {
		t.queue = t.queue[:copy(t.queue, t.queue[t.head:])]
		t.head, t.warm = 0, t.warm-t.head
	}
	if t.head >= t.warm {
		t.lookAhead()
	}
	events.FirstToken(j, now)
	events.Done(j, now)
}

// lookAhead reads the next few jobs. In a backlog they come from memory: one by one, as
// they end, each is waited for; here no load depends on another, so they come together.
func (t *Toy) lookAhead() {
	next := t.queue[t.head:min(t.head+16, len(t.queue))]
	t.warm = t.head + len(next)
	for _, q := range next {
		t.warmed += q.Arrive + Instant(q.Output)
	}
}

// Sample implements Model: one job is served, the others wait.
func (t *Toy) Sample() load.Sample {
	n := len(t.queue) - t.head
	return load.Sample{Waiting: max(n-1, 0), Running: min(n, 1), HasQueue: true}
}

// Kill implements Model.
func (t *Toy) Kill() []*traffic.Job {
	var dead []*traffic.Job
	for _, q := range t.queue[t.head:] {
		dead = append(dead, q.Job)
	}
	t.queue, t.head, t.warm, t.slots, t.free = t.queue[:0], 0, 0, t.slots[:0], 0
	return dead
}
