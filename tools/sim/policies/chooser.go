// Package policies puts routing policies behind one small interface: the
// agent's own (package decide, the very code that the agent runs), those of
// other routers, and those of the seed's article.
package policies

import (
	"math/rand/v2"
	"time"

	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// Instant is a time since the start of the simulation.
type Instant = traffic.Instant

// Chooser is one routing agent. It owns no clock; it is used by one goroutine.
type Chooser interface {
	// Route chooses a backend for the job and books it there; -1 when no
	// backend can take it. It may set the job's Believe.
	Route(j *traffic.Job, now Instant) int
	// FirstToken, Done and Failed follow what becomes of the job. Of Done and
	// Failed exactly one is called, last.
	FirstToken(j *traffic.Job, now Instant)
	Done(j *traffic.Job, now Instant)
	Failed(j *traffic.Job, now Instant)
	// Observe takes a poll of a backend.
	Observe(slot int, s load.Sample, now Instant)
}

// Holder is a Chooser behind which jobs may wait at the agent instead of in an engine.
type Holder interface {
	Chooser
	decide.Asker
	// RouteOrHold is Route, but decides decide.ReasonNoRoom where no backend has memory
	// for the job.
	RouteOrHold(j *traffic.Job, now Instant) (slot int, d decide.Decision)
	// Asked is what RouteOrHold asks.
	Asked(j *traffic.Job) decide.Request
	// Holds says whether jobs are to wait at all.
	Holds() bool
}

// Peer is a Chooser that takes part in the sharing of decisions between
// agents. The job may have ended by the time a note arrives, so notes are values.
type Peer interface {
	Chooser
	// Note describes the job's booking, right after Route.
	Note(j *traffic.Job) Note
	// Told books another agent's decision. ToldFirst releases its tokens, ToldDone what
	// is left; ToldFailed is ToldDone of a request that died with its backend.
	Told(n *Note, now Instant)
	ToldFirst(n *Note, now Instant)
	ToldDone(n *Note, now Instant)
	ToldFailed(n *Note, now Instant)
}

// Note is one decision as an agent tells it to the others.
type Note struct {
	ID     uint64 // names the request among all agents
	Slot   int
	Keys   []key.Key // belongs to the note
	Bytes  int
	Prompt int
	Stream bool // its first token can be seen, and will be told
}

// Setup is what a policy may know about the fleet.
type Setup struct {
	Backends    int
	BlockTokens int           // prompt tokens per block of the keys
	Capacity    []int64       // tokens the cache of each backend holds
	Memory      float64       // what the router's memory holds over that
	Rate        float64       // prefill tokens/s of one healthy backend
	Polls       time.Duration // interval of the polls; 0 = none
	TTL         time.Duration // of the router's memory; 0 = the agent's default
	Unexplored  bool          // no exploration
	Perfect     bool          // the toy: memory is exactly the cache, no marks expire
	Rand        *rand.Rand
}

// Policy makes choosers.
type Policy struct {
	Name string
	New  func(Setup) Chooser
	Toy  bool // it knows the seed's toy only
}

// books counts what most policies need: requests in flight per backend, and
// which backends answer.
type books struct {
	active []int
	down   []bool
	rnd    *rand.Rand
}

func newBooks(s Setup) books {
	return books{active: make([]int, s.Backends), down: make([]bool, s.Backends), rnd: s.Rand}
}

func (b *books) FirstToken(*traffic.Job, Instant)           {}
func (b *books) Done(j *traffic.Job, _ Instant)             { b.active[j.Slot]-- }
func (b *books) Failed(j *traffic.Job, _ Instant)           { b.active[j.Slot]--; b.down[j.Slot] = true }
func (b *books) Observe(slot int, _ load.Sample, _ Instant) { b.down[slot] = false }

// least returns the backend that is up with the smallest cost, ties at random,
// or -1.
func (b *books) least(cost func(slot int) float64) int {
	best, at, ties := 0.0, -1, 0
	for slot := range b.active {
		if b.down[slot] {
			continue
		}
		switch c := cost(slot); {
		case at < 0 || c < best:
			best, at, ties = c, slot, 1
		case c == best:
			if ties++; b.rnd.IntN(ties) == 0 {
				at = slot
			}
		}
	}
	return at
}

func (b *books) take(slot int) int {
	if slot >= 0 {
		b.active[slot]++
	}
	return slot
}

func (b *books) leastActive() int {
	return b.least(func(slot int) float64 { return float64(b.active[slot]) })
}
