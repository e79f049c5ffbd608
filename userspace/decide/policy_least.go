package decide

// leastLoad takes the least loaded and does not look at the prompt: under
// token-load it compares what is in flight, as if every backend had to prefill
// all of this prompt.
func leastLoad(c choice, cs []Candidate) (int, Outcome, Reason) {
	for i := range cs {
		e := &cs[i]
		e.Cost = c.load(e)
		if c.p.Load == TokenLoad && e.Tokens >= 0 {
			e.Cost = float64(e.Tokens + c.q.Tokens)
		}
	}
	return c.lowest(cs, false), NotApplicable, ReasonPolicy
}
