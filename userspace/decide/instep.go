package decide

// The constants of what priced-spread does with a request that no backend has an
// advantage for: none holds more of it than another, and it takes a step at most.
const (
	// spreadTight is from which KV use on an engine's queue waits for memory.
	spreadTight = 0.9
	// spreadLoose is by what share the numbers of answers may differ.
	spreadLoose = 0.2
)

// indifferent says whether all backends would have to prefill the same, and no more
// than one step.
func indifferent(cs []Candidate) bool {
	for i := range cs {
		if cs[i].Uncached != cs[0].Uncached {
			return false
		}
	}
	return cs[0].Uncached <= spreadBatch
}

// short says whether the engine had requests waiting for KV memory when it was
// polled. They are admitted before any that comes now: those that it preempted too,
// which have had their first token and are in nobody's reservation.
func (c *Candidate) short() bool { return c.Waiting > 0 && c.HasKV && c.KVUse > spreadTight }

// outOfStep returns a random one of the candidates that are as good as pick but for
// the numbers of their answers, of which those that are short of memory come last.
//
// Numbers may differ by spreadLoose. Equal ones keep engines in step: answers that
// began together and are about as long run out of memory at the same time,
// everywhere, and so do those that follow. An engine with fewer is faster, so unequal
// numbers drift apart, and some engine always has room. It is the remedy of random
// early detection against senders that all slow down at once (Floyd and Jacobson,
// 1993).
func (c choice) outOfStep(cs []Candidate) int {
	pick, least := -1, cs[0].Requests
	for i := range cs {
		least = min(least, cs[i].Requests)
		if pick < 0 || cs[i].before(&cs[pick]) {
			pick = i
		}
	}
	most := cs[pick].Cost + spreadLoose*float64(least)*c.p.Delta*c.q.Output*spreadAnswer
	best, ties := pick, uint64(0)
	for i := range cs {
		e := &cs[i]
		if i == pick || e.Cost <= most && e.Tokens <= spreadBatch && e.short() == cs[pick].short() {
			if ties++; c.rnd.Uint64N(ties) == 0 {
				best = i
			}
		}
	}
	return best
}

// before says whether c has memory and e has not, or else c costs less.
func (c *Candidate) before(e *Candidate) bool {
	if c.short() != e.short() {
		return e.short()
	}
	return c.Cost < e.Cost
}
