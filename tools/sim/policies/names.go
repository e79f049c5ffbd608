package policies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tautline/tautline/userspace/decide"
)

// All returns every policy that can be named, the agent's own first.
func All() []Policy {
	all := []Policy{
		Own("always-sticky", decide.AlwaysSticky, nil),
		Own("queue-priced", decide.QueuePriced, nil),
		Own("priced", decide.Priced, nil),
		Own("weighted-blend", decide.WeightedBlend, nil),
		Own("least-load", decide.LeastLoad, nil),
		Own("least-requests", decide.LeastLoad, active),
		Own("round-robin", decide.RoundRobin, nil),
		Own("priced-spread", decide.PricedSpread, nil),
		Holding(Own("priced-spread", decide.PricedSpread, nil)),
		Own("break-even", decide.Priced, func(p *decide.Params) { p.Kappa, p.Cap, p.Delta = 0, 0, 0 }),
		LLMDBlend(),
		CacheAware("cache-aware", 0.3, 64, 1.5, cacheAwareKeys),
		CacheAware("cache-aware-eager", 0.5, 32, 1.1, cacheAwareKeys),
		BoundedHash(1.25),
		PowerOfTwo(),
		Random(),
		Article("article-always-sticky", AlwaysTau, 4),
		Article("article-saturating", Tau, 4),
	}
	for i, form := range saturating() {
		all = slices.Insert(all, i, Own(form.name, decide.StickyUntilSaturated, form.change))
	}
	return all
}

// form is a form of sticky-until-saturated.
type form struct {
	name   string
	change func(*decide.Params)
}

// saturating are the agent's policies that have a saturation limit. llm-d is what
// llm-d 1.0 ships: nobody explores, and a prompt of any length may stick.
func saturating() []form {
	llmd := func(p *decide.Params) { p.Exploration, p.MinBlocks = 0, 1 }
	return []form{
		{"sticky-until-saturated", func(*decide.Params) {}},
		{"sticky-active", active},
		{"sticky-absolute", func(p *decide.Params) { p.TauCompare = decide.Absolute }},
		{"llm-d", llmd},
		{"llm-d-active", func(p *decide.Params) { llmd(p); active(p) }},
	}
}

func active(p *decide.Params) { p.Load = decide.ActiveRequests }

// WithTau returns a policy that has a saturation limit, with another limit in
// tokens.
func WithTau(name string, tokens float64) (Policy, error) {
	if !(tokens >= 0 && tokens <= 1e15) {
		return Policy{}, fmt.Errorf("tau %v: must be a number of tokens", tokens)
	}
	if name == "article-saturating" {
		return Article(name, tokens, 4), nil
	}
	for _, f := range saturating() {
		if f.name == name {
			return Own(name, decide.StickyUntilSaturated, func(p *decide.Params) { f.change(p); SetTau(tokens)(p) }), nil
		}
	}
	return Policy{}, fmt.Errorf("policy %q has no tau", name)
}

// cacheAwareKeys bounds a tree of cache_aware: 2^26 characters by default, in
// keys of 1,024 characters.
const cacheAwareKeys = 1 << 16

// Find returns the policies of the given names. The error lists all names.
func Find(names []string) ([]Policy, error) {
	all := All()
	var out []Policy
	for n, name := range names {
		if slices.Contains(names[:n], name) {
			return nil, fmt.Errorf("policy %q: named twice", name)
		}
		i := slices.IndexFunc(all, func(p Policy) bool { return p.Name == name })
		if i < 0 {
			var known []string
			for _, p := range all {
				known = append(known, p.Name)
			}
			return nil, fmt.Errorf("policy %q: not one of %s", name, strings.Join(known, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}
