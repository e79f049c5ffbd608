package decide

// The weights of weighted-blend, as the router that sticky-until-saturated
// replaced shipped them.
const (
	blendPrefix   = 3
	blendQueue    = 2
	blendKV       = 2
	blendNoHitLRU = 2
)

// weightedBlend adds four scores in 0..1: the share of the prompt that is held,
// the shortness of the queue against the others', free KV memory, and, for a
// request that nobody holds, how long ago the backend took such a request. For
// comparison: the weights are an exchange rate between units that nobody
// measured. The queue is the worst of the window; the router that shipped the weights
// took the latest poll. Cost is the weighted sum of what the scores lack.
func weightedBlend(c choice, cs []Candidate) (int, Outcome, Reason) {
	shortest, longest, measured := 0, 0, false
	run, blocks := 0, 0
	for i := range cs {
		e := &cs[i]
		if e.Measured {
			if !measured {
				shortest, longest, measured = e.Queue, e.Queue, true
			}
			shortest, longest = min(shortest, e.Queue), max(longest, e.Queue)
		}
		if e.Run > run {
			run, blocks = e.Run, e.Blocks
		}
	}
	for i := range cs {
		e := &cs[i]
		prefix, kv := 0.0, 0.0
		if c.q.Blocks > 0 {
			prefix = float64(e.Blocks) / float64(c.q.Blocks)
		}
		if e.HasKV {
			kv = 1 - e.KVUse
		}
		idle := 0.5 // no opinion about a request that somebody holds
		if run == 0 {
			idle = coldRank(cs, i)
		}
		e.Cost = blendPrefix*(1-prefix) + blendQueue*(1-queueScore(e, shortest, longest)) +
			blendKV*(1-kv) + blendNoHitLRU*(1-idle)
	}
	return c.compared(cs, run, blocks)
}

// queueScore is 1 for the shortest of the measured queues and 0 for the longest
// and for one that is not measured.
func queueScore(e *Candidate, shortest, longest int) float64 {
	switch {
	case !e.Measured:
		return 0
	case shortest == longest:
		return 1
	}
	return float64(longest-e.Queue) / float64(longest-shortest)
}

// coldRank is 1 for the backend that took a cold request longest ago, or never,
// and 0 for the one that took the latest.
func coldRank(cs []Candidate, i int) float64 {
	later := 0
	for j := range cs {
		if cs[j].LastCold > cs[i].LastCold {
			later++
		}
	}
	return float64(later) / float64(max(len(cs)-1, 1))
}
