package decide

// alwaysSticky stays with the least loaded backend that holds enough of the
// prompt, whatever its load. For comparison: it shows the hot spots that the
// gate of sticky-until-saturated is there to release.
func alwaysSticky(c choice, cs []Candidate) (int, Outcome, Reason) {
	if !c.markQualified(cs) {
		return c.byLoad(cs, false), NoMatch, ReasonNone
	}
	return c.byLoad(cs, true), Sticky, ReasonNone
}
