package decide

import "slices"

const (
	// repeatsFew is the share of prompt tokens below which hardly anything is sent twice,
	// and repeatsSure the forgetful count of requests that must have shown it: some 35.
	repeatsFew   = 0.03
	repeatsSure  = 25
	repeatsDecay = 0.98
)

// repeats is a forgetful count of the tokens of a model's prompts, and of those of them that
// had been sent before, by whomever: that were known to be held, or that the engine found in
// its cache. What one of many agents knows itself is a small part of that, so prompts of
// which the engine says nothing do not count. Zero: nothing was seen.
type repeats struct{ requests, tokens, again float64 }

func (r *repeats) add(e *expectation, cached int64) {
	r.requests = repeatsDecay*r.requests + 1
	r.tokens = repeatsDecay*r.tokens + float64(e.tokens)
	r.again = repeatsDecay*r.again + float64(max(e.known, cached))
}

// Unlike says whether there is a model hardly a prompt for which begins like another, as far
// as usage tells.
func (f *Fleet) Unlike() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.repeats, func(r repeats) bool { return r.few() })
}

// few says whether hardly a prompt begins like another.
func (r *repeats) few() bool { return r.requests > repeatsSure && r.again < repeatsFew*r.tokens }
