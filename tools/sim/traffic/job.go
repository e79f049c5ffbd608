// Package traffic makes the requests of a simulated fleet: open and closed
// loops, conversations, and traces from files.
//
// A prompt is a path of segments; a segment's ID names everything from the
// prompt's start to the segment's end. Two prompts share exactly the segments
// with equal IDs, for the caches of the engines and for the keys of the router
// alike. Everything is drawn from the seed: the same seed gives the same
// requests, whatever the policy answers in an open loop.
package traffic

import (
	"math"
	"slices"
	"time"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
)

// Instant is a time since the start of the simulation.
type Instant = time.Duration

// Never is later than every event.
const Never = Instant(math.MaxInt64)

// Segment is a piece of a prompt.
type Segment struct {
	ID     uint64 // names the whole prompt up to the end of this segment
	Tokens int
}

// Job is one request, from its arrival to its end. The simulator owns it and
// uses it again for a later request; nobody keeps it after Done.
type Job struct {
	// What the end of a request reads comes first and lies together: in a long
	// backlog it comes from memory.
	Arrive  Instant
	First   Instant       // first token; Never until then
	Ticket  decide.Ticket // of the routing agent, if that is the agent's own code
	Agent   int           // the routing agent that took it
	Slot    int           // the backend it was sent to
	Prompt  int           // tokens, sum of Segs
	Cached  int           // prompt tokens that the engine found in its cache
	Believe int           // prompt tokens that the router expected there
	Output  int           // tokens of the answer, at least 1
	Stream  bool          // false: the router cannot see the first token
	Seen    bool          // its first token was counted; a second try is not

	Preempted int32 // how often an engine took its memory away

	Index   int // dense number among the jobs alive; used again
	Class   int // kind of request in mixed traffic, for the source's own use
	Session int // conversation in the source, -1 = none
	Model   string
	Segs    []Segment
	Answer  uint64 // ID of the prompt followed by its answer; 0 = nobody continues it
	Max     int    // max_tokens of the request; 0 = not given

	Keys  []key.Key // what the router sees, while it is asked; see SetKeys
	Bytes int       // canonical bytes of the prompt

	// The engine's own state of this job.
	Work struct {
		Finish int64 // decode step at which the answer ends
		Left   int32 // tokens still to be prefilled
		Kept   int32 // answer tokens written before it was preempted; the last of Segs while > 0
		Order  int32 // of admission
		Node   int32 // what it pins in the prefix cache
	}
}

// Reset empties the job, keeping its Index and the storage of its segments.
func (j *Job) Reset() {
	*j = Job{Index: j.Index, Segs: j.Segs[:0], Session: -1, Slot: -1, First: Never, Stream: true, Output: 1}
}

// Add appends a segment to the prompt.
func (j *Job) Add(s Segment) {
	if s.Tokens > 0 {
		j.Segs = append(j.Segs, s)
		j.Prompt += s.Tokens
	}
}

// Source gives jobs in the order of their arrival.
type Source interface {
	// Next returns when the next job arrives, Never when none is due (a closed
	// loop may schedule more when a job ends).
	Next() Instant
	// Pop fills j, which is reset, with the job that is due.
	Pop(j *Job)
	// Done tells that the answer of j ended.
	Done(j *Job, now Instant)
}

// Mix returns a well mixed 64-bit number of a and b (splitmix64's finish). IDs
// and keys are made with it.
func Mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// RealBlock is how many tokens a block of key.BlockBytes bytes is at four bytes
// per token, which is what a router takes for a start.
const RealBlock = key.BlockBytes / 4

// SetKeys computes the keys and the canonical bytes that a router would find
// for the job when a block is blockTokens tokens. The geometry is the router's:
// dense keys first, then sparse ones with a doubling stride, none for a partial
// block. They take the place of what Keys holds, which may be storage that other jobs
// use in turn. Blocks larger than RealBlock make long prompts cheap to simulate; what
// the router then knows of a match is that much coarser.
func (j *Job) SetKeys(blockTokens int) {
	j.Keys = j.Keys[:0]
	j.Bytes = j.Prompt * key.BlockBytes / blockTokens
	if len(j.Segs) == 0 {
		return
	}
	j.Keys = slices.Grow(j.Keys, min(j.Prompt/blockTokens, key.MaxKeys))
	end, stride := 0, blockTokens
	seg, segEnd := 0, j.Segs[0].Tokens
	for n := 0; n < key.MaxKeys; n++ {
		if n >= key.DenseKeys && (n-key.DenseKeys)%key.SparseRun == 0 {
			stride *= 2
		}
		if end += stride; end > j.Prompt {
			return
		}
		for end > segEnd {
			seg++
			segEnd += j.Segs[seg].Tokens
		}
		j.Keys = append(j.Keys, key.Key(Mix(j.Segs[seg].ID, uint64(n)|1<<40)))
	}
}
