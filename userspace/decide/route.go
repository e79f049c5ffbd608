package decide

import (
	"math/rand/v2"
	"slices"
)

// Route chooses a backend, reserves the request's load there and marks its
// keys, in one step. The ticket must be ended by Done on every path; it is the
// zero Ticket when Decision.Slot < 0.
func (f *Fleet) Route(r Request, now Instant) (Ticket, Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Moves.end(f, now)
	d, m := f.ask(&r, now, f.rnd)
	if d.Reason == ReasonNoRoom { // that is no decision yet: it is asked again
		return Ticket{}, d
	}
	if d.Slot < 0 {
		f.decisions[d.Policy][d.Outcome]++
		f.refusals[d.Reason]++
		return Ticket{}, d
	}
	f.count(&d, m)
	f.reused(&r, &d, now)
	return f.depart(&r, &d, m, now), d
}

// Explain answers what Route would do and why, without doing it. A random
// choice may fall otherwise the next time. The candidates, in the order of slots,
// are the caller's.
func (f *Fleet) Explain(r Request, now Instant) (Decision, []Candidate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, _ := f.ask(&r, now, f.aside(now))
	cs := slices.Clone(f.cands)
	slices.SortFunc(cs, func(a, b Candidate) int { return a.Slot - b.Slot })
	return d, cs
}

// Ask is Explain without the candidates.
func (f *Fleet) Ask(r Request, now Instant) Decision {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, _ := f.ask(&r, now, f.aside(now))
	return d
}

// aside is a source of its own: explaining must not shift the choices that follow.
func (f *Fleet) aside(now Instant) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(now), uint64(f.flights)))
}

// ask gathers what is known about the candidates and decides. It leaves them in
// f.cands and changes nothing else.
func (f *Fleet) ask(r *Request, now Instant, rnd *rand.Rand) (Decision, *model) {
	m := f.serving(r.Model)
	means, last := 0, f.turns.last
	if m != nil {
		means, last = m.means, m.turns.last
	}
	learned := f.load.Learned(means)
	keys := keysOf(r)
	q := Question{
		Keys: len(keys), Blocks: r.covered(len(keys)),
		Tokens: r.tokens(learned.BytesPerToken), Output: learned.Output, Last: last,
	}
	f.candidates(r, &q, now)
	if policies[f.params.Policy].spreads {
		f.spread(r, &q, now)
		q.MayWait = r.MayWait
	}
	if r.Pinned >= 0 {
		return f.pinned(r, &q), m
	}
	f.nearest(r.Site)
	if policies[f.params.Policy].spreads && f.params.SharedKeys {
		f.share(r, &q, means)
	}
	return Decide(&f.params, &q, f.cands, rnd), m
}

// serving leaves the slots that serve the model in f.slots.
func (f *Fleet) serving(name string) *model {
	m := f.models[name]
	f.slots = f.slots[:0]
	switch {
	case name == "":
		f.slots = appendUnion(f.slots, f.all, nil)
	case m == nil:
		f.slots = appendUnion(f.slots, f.any, nil)
	default:
		f.slots = appendUnion(f.slots, f.any, m.slots)
	}
	return m
}

// candidates fills f.cands with the view of every slot in f.slots.
func (f *Fleet) candidates(r *Request, q *Question, now Instant) {
	if q.Keys > 0 {
		f.index.Runs(keysOf(r), now, f.params.countsPending(), f.runs)
	} else {
		clear(f.runs)
	}
	f.load.Views(f.slots, now, f.views)
	f.cands = slices.Grow(f.cands[:0], len(f.slots))[:len(f.slots)]
	whole, spreads := r.whole(q.Blocks), policies[f.params.Policy].spreads
	for i, slot := range f.slots {
		v := &f.views[i]
		run := f.runs[slot]
		blocks := r.covered(run)
		c := &f.cands[i]
		*c = Candidate{} // a literal with all its fields would be made elsewhere and copied
		c.Slot, c.Refusal, c.Erring = slot, v.Refusal, v.Erring
		c.Run, c.Blocks, c.Uncached = run, blocks, q.Tokens-matched(q.Tokens, blocks, whole)
		c.Tokens, c.Requests, c.Decoding = v.Tokens, v.Requests, v.Decoding
		c.Queue, c.Measured = v.Queue, v.Measured
		c.KVUse, c.HasKV, c.Held = v.KVUse, v.HasKV, v.HeldTok
		c.Gateway = f.backends[slot].gateway
		if spreads && f.backends[slot].others.some() {
			c.Others, c.Served = v.Others, v.Served
		}
		c.Waiting, c.Claimed, c.Since, c.Capacity = v.Waiting, v.Claimed, v.Since, v.Capacity
		c.LastCold = f.backends[slot].lastCold
		for _, t := range r.Tried {
			c.Tried = c.Tried || t == slot
		}
	}
}

// pinned goes to the backend that a stored id names or nowhere.
func (f *Fleet) pinned(r *Request, q *Question) Decision {
	d := Decision{Slot: -1, Outcome: None, Reason: ReasonPinGone, Policy: f.params.Policy, Keys: q.Keys, PromptTokens: q.Tokens}
	for i := range f.cands {
		c := &f.cands[i]
		switch {
		case c.Slot != r.Pinned:
			continue
		case !c.Takes():
			d.Reason = ReasonPinRefused
		default:
			d.Slot, d.Outcome, d.Reason = c.Slot, Pinned, ReasonNone
			d.Run, d.Uncached = c.Run, c.Uncached
		}
	}
	return d
}

// nearest narrows the candidates to a site, if one of its backends can be taken.
func (f *Fleet) nearest(site string) {
	if site == "" {
		return
	}
	here := func(c *Candidate) bool { return f.backends[c.Slot].spec.Site == site }
	some := false
	for i := range f.cands {
		some = some || here(&f.cands[i]) && f.cands[i].Takes()
	}
	if !some {
		return
	}
	n := 0
	for i := range f.cands {
		if here(&f.cands[i]) {
			f.cands[n] = f.cands[i]
			n++
		}
	}
	f.cands = f.cands[:n]
}

// count books a decision that found a backend.
func (f *Fleet) count(d *Decision, m *model) {
	b := &f.backends[d.Slot]
	f.decisions[d.Policy][d.Outcome]++
	b.picks[d.Outcome]++
	b.prompt += d.PromptTokens
	b.matched += d.PromptTokens - d.Uncached
	if d.Run == 0 && deepest(f.cands) == 0 { // where another holds it, it is not cold
		f.cold++
		b.lastCold = f.cold
	}
	if m != nil {
		m.turns.last = d.Slot
	} else {
		f.turns.last = d.Slot
	}
}
