// Package engine models inference engines: the toy of one queue per endpoint,
// and a continuous-batching engine with chunked prefill and a prefix cache.
//
// A model is driven from outside: Submit, then Step at each time that Next
// names. It knows nothing of routing.
package engine

import (
	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/load"
)

// Instant is a time since the start of the simulation.
type Instant = traffic.Instant

// Model is one engine.
type Model interface {
	// Submit takes a job. It sets the job's Cached as soon as the engine knows.
	Submit(j *traffic.Job, now Instant)
	// Next is the time of the engine's next change, traffic.Never when idle.
	Next() Instant
	// Step makes the change that is due at now, which is Next().
	Step(now Instant, events Events)
	// Sample is what a poll would read.
	Sample() load.Sample
	// Kill empties the engine and its cache, and returns the jobs that die.
	Kill() []*traffic.Job
}

// Events takes what an engine reports. The job is the caller's again after Done.
type Events interface {
	FirstToken(j *traffic.Job, now Instant)
	Done(j *traffic.Job, now Instant)
}
