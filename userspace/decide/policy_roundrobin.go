package decide

// roundRobin takes the candidate that follows the one which the model's request
// before this one took, in the order of slots, wherever it is free to go. The
// turn belongs to the model: the traffic of another does not skip a backend.
// The first request of a model starts anywhere.
func roundRobin(c choice, cs []Candidate) (int, Outcome, Reason) {
	pick, first := -1, 0
	for i := range cs {
		cs[i].Cost = 0
		if cs[i].Slot < cs[first].Slot {
			first = i
		}
		if cs[i].Slot > c.q.Last && (pick < 0 || cs[i].Slot < cs[pick].Slot) {
			pick = i
		}
	}
	switch {
	case c.q.Last < 0:
		pick = c.rnd.IntN(len(cs))
	case pick < 0:
		pick = first
	}
	return pick, NotApplicable, ReasonPolicy
}
