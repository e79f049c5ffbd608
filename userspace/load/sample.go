package load

import "time"

// Sample is one poll of an engine, summed over its engines (data parallel ranks).
type Sample struct {
	Waiting       int     // requests in the engine's queue
	Running       int     // requests being served
	Engines       int     // of a gateway: how many model servers the two are summed over; 0 = it is one itself
	KVUse         float64 // largest share of KV blocks in use over the engines, 0..1
	CapacityTok   int64   // KV capacity in tokens; 0 = the engine does not say
	BlockTok      int     // tokens per KV block; 0 = the engine does not say
	StartTime     float64 // process start, seconds since 1970; 0 = the engine does not say
	PromptTokens  float64 // counter of prompt tokens; a step back is a restart
	CachedTokens  float64 // counter of prompt tokens served from the prefix cache
	HasQueue      bool    // Waiting and Running were present
	HasKV         bool    // KVUse was present
	HasStartTime  bool
	HasPromptToks bool
}

// depth is how deep the queue is that a new request joins. Behind a gateway that is
// one of several, and the mean tells how long the wait is.
func (s *Sample) depth() int {
	n := max(s.Engines, 1)
	return (max(s.Waiting, 0) + n - 1) / n
}

// restarted says whether next comes from another process than prev. Engines
// print their start time in whole or fractional seconds, so half a second of
// difference is rounding and not a restart.
func restarted(prev, next *Sample) bool {
	if prev.HasStartTime && next.HasStartTime {
		if d := next.StartTime - prev.StartTime; d > 0.5 || d < -0.5 {
			return true
		}
	}
	return prev.HasPromptToks && next.HasPromptToks && next.PromptTokens < prev.PromptTokens
}

// maxSamples bounds a window. It holds five seconds of polls every 40 ms.
const maxSamples = 128

// window is the polled queue depths of one backend, oldest first.
type window struct {
	at      []time.Duration
	waiting []int
}

// add records a depth and forgets the samples that left the window.
func (w *window) add(at, width time.Duration, waiting int) {
	keep := 0
	for i := range w.at {
		if w.at[i] >= at-width {
			w.at[keep], w.waiting[keep] = w.at[i], w.waiting[i]
			keep++
		}
	}
	if keep == maxSamples { // drop the oldest
		copy(w.at, w.at[1:keep])
		copy(w.waiting, w.waiting[1:keep])
		keep--
	}
	w.at = append(w.at[:keep], at)
	w.waiting = append(w.waiting[:keep], waiting)
}

// worst returns the largest depth in [now-width, now]. Samples stamped after
// now are skipped; ok is false when no sample is left.
func (w *window) worst(now, width time.Duration) (depth int, ok bool) {
	for i, at := range w.at {
		if at > now || at < now-width {
			continue
		}
		if !ok || w.waiting[i] > depth {
			depth, ok = w.waiting[i], true
		}
	}
	return depth, ok
}

func (w *window) reset() { w.at, w.waiting = w.at[:0], w.waiting[:0] }
