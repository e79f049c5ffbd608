package decide

// priced has no filter and no limit. It takes the smallest
//
//	L + m (1 + kappa + min(d, cap)) + delta o a
//
// where m is what the backend must prefill of this prompt, L its uncached
// tokens in flight, a its requests in flight, d those past their first token,
// and o the completion tokens expected of this answer. L + m is the request's
// own wait; kappa m is what the fill costs later requests in evictions and in
// waiting; min(d, cap) m is the stall of the answers that run there; delta o a
// is what one more answer slows them.
func priced(c choice, cs []Candidate) (int, Outcome, Reason) {
	p := c.p
	run, blocks := 0, 0
	for i := range cs {
		e := &cs[i]
		m := float64(e.Uncached)
		e.Cost = float64(max(e.Tokens, 0)) +
			m*(1+p.Kappa+min(float64(e.Decoding), p.Cap)) +
			p.Delta*c.q.Output*float64(e.Requests)
		if e.Run > run {
			run, blocks = e.Run, e.Blocks
		}
	}
	return c.compared(cs, run, blocks)
}

// compared takes the smallest cost and names the outcome by whether the longest
// run won. A longest run under MinBlocks is no match: there was nothing to win.
func (c choice) compared(cs []Candidate, run, blocks int) (int, Outcome, Reason) {
	return c.outcome(cs, c.lowest(cs, false), run, blocks)
}

// outcome names what it is to take cs[pick].
func (c choice) outcome(cs []Candidate, pick, run, blocks int) (int, Outcome, Reason) {
	match := blocks >= c.p.MinBlocks
	for i := range cs {
		cs[i].Sticky = match && cs[i].Run == run
	}
	switch {
	case !match:
		return pick, NoMatch, ReasonNone
	case cs[pick].Sticky:
		return pick, Sticky, ReasonNone
	}
	return pick, LoadOverride, ReasonCheaper
}
