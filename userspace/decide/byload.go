package decide

import "math"

// lowest returns the candidate of the smallest cost, a random one of several.
// only restricts it to the sticky ones.
func (c choice) lowest(cs []Candidate, only bool) int {
	return c.lowestOf(cs, func(e *Candidate) bool { return !only || e.Sticky })
}

// lowestOf is lowest of those that are among; -1 if none is.
func (c choice) lowestOf(cs []Candidate, among func(*Candidate) bool) int {
	best, ties := -1, uint64(0)
	for i := range cs {
		switch {
		case !among(&cs[i]):
		case best < 0 || cs[i].Cost < cs[best].Cost:
			best, ties = i, 1
		case cs[i].Cost == cs[best].Cost:
			if ties++; c.rnd.Uint64N(ties) == 0 {
				best = i
			}
		}
	}
	return best
}

// byLoad prices the candidates by the load that the policy looks at and returns
// the least loaded. only restricts the choice to the sticky ones.
func (c choice) byLoad(cs []Candidate, only bool) int {
	for i := range cs {
		cs[i].Cost = c.load(&cs[i])
	}
	return c.lowest(cs, only)
}

// load is the load of one candidate; a load that is not known sorts last.
func (c choice) load(e *Candidate) float64 {
	switch {
	case c.p.Policy == QueuePriced:
		return queue(e)
	case c.p.Load == ActiveRequests:
		return float64(e.Requests)
	case e.Tokens < 0:
		return math.Inf(1)
	}
	return float64(e.Tokens + e.Uncached)
}

// queue is the windowed worst queue depth; unmeasured sorts last.
func queue(e *Candidate) float64 {
	if !e.Measured {
		return math.Inf(1)
	}
	return float64(e.Queue)
}

// qualifies says whether a run is long enough to hold a request: it covers
// Threshold of the keyed prompt (or, where enough is set, EnoughBlocks), and
// never less than MinBlocks.
func (c choice) qualifies(e *Candidate, enough bool) bool {
	switch {
	case e.Blocks < c.p.MinBlocks:
		return false
	case enough && e.Blocks >= c.p.EnoughBlocks:
		return true
	}
	return float64(e.Blocks) >= c.p.Threshold*float64(c.q.Blocks)
}

// deepest returns the longest run among cs, in keys.
func deepest(cs []Candidate) (run int) {
	for i := range cs {
		run = max(run, cs[i].Run)
	}
	return run
}
