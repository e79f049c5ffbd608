package decide

import "math"

// stickyUntilSaturated stays with all backends that hold enough of the prompt,
// while the least loaded of them is not more than tau uncached tokens behind
// the least loaded of the others. Source: llm-d 1.0; the gap form is what it ships.
func stickyUntilSaturated(c choice, cs []Candidate) (int, Outcome, Reason) {
	if !c.markQualified(cs) {
		return c.byLoad(cs, false), NoMatch, ReasonNone
	}
	open, why := c.saturated(cs)
	if open {
		return c.byLoad(cs, false), LoadOverride, why
	}
	return c.byLoad(cs, true), Sticky, why
}

// markQualified marks as sticky every candidate whose run qualifies.
func (c choice) markQualified(cs []Candidate) (some bool) {
	for i := range cs {
		cs[i].Sticky = c.qualifies(&cs[i], false)
		some = some || cs[i].Sticky
	}
	return some
}

// saturated is the gate. It compares what is in flight without the request
// itself. A side whose load is not known keeps the request sticky; so does the
// lack of another side.
func (c choice) saturated(cs []Candidate) (open bool, why Reason) {
	sticky, other := int64(math.MaxInt64), int64(math.MaxInt64)
	others := false
	for i := range cs {
		side := &other
		if cs[i].Sticky {
			side = &sticky
		} else {
			others = true
		}
		if cs[i].Tokens >= 0 {
			*side = min(*side, cs[i].Tokens)
		}
	}
	if !others {
		return false, ReasonNone
	}
	if sticky == math.MaxInt64 || other == math.MaxInt64 {
		return false, ReasonMissingSignal
	}
	over := sticky
	if c.p.TauCompare == Gap {
		over -= other
	}
	if over > c.p.Tau() {
		return true, ReasonSaturated
	}
	return false, ReasonNone
}
