package decide

import "math"

// queuePriced stays with the backends of the longest run while their queue is
// not deeper than the best other queue by more than the match is worth.
// Source: the prefix affinity of the grid gateway. It prices the single request
// only; the simulator shows what that costs where caches are tight.
func queuePriced(c choice, cs []Candidate) (int, Outcome, Reason) {
	run := deepest(cs)
	some := false
	for i := range cs {
		e := &cs[i]
		e.Sticky = run > 0 && e.Run == run && c.qualifies(e, true)
		some = some || e.Sticky
	}
	if !some {
		return c.byLoad(cs, false), NoMatch, ReasonNone
	}
	sticky, other := math.Inf(1), math.Inf(1)
	others := false
	blocks := 0
	for i := range cs {
		if cs[i].Sticky {
			sticky = min(sticky, queue(&cs[i]))
			blocks = cs[i].Blocks
		} else {
			other = min(other, queue(&cs[i]))
			others = true
		}
	}
	switch {
	case !others || !math.IsInf(sticky, 1) && math.IsInf(other, 1):
		return c.byLoad(cs, true), Sticky, ReasonNone
	case math.IsInf(sticky, 1) && math.IsInf(other, 1):
		return c.byLoad(cs, true), Sticky, ReasonMissingSignal
	case math.IsInf(sticky, 1):
		return c.byLoad(cs, false), LoadOverride, ReasonUnmeasured
	case sticky-other > c.p.Worth(blocks):
		return c.byLoad(cs, false), LoadOverride, ReasonSaturated
	}
	return c.byLoad(cs, true), Sticky, ReasonNone
}
