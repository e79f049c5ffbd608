package decide

import (
	"fmt"
	"strings"
)

// Policy is a way to choose.
type Policy uint8

// The policies, in the order of the table below.
const (
	StickyUntilSaturated Policy = iota
	QueuePriced
	Priced
	AlwaysSticky
	LeastLoad
	RoundRobin
	WeightedBlend
	PricedSpread

	NumPolicies = int(PricedSpread) + 1
)

// chooser picks one of at least two candidates that may all be taken. It sets
// Sticky and Cost in cs for the explanation.
type chooser func(c choice, cs []Candidate) (pick int, o Outcome, why Reason)

// policies is every policy there is. A new one is a file and a line here.
var policies = [NumPolicies]struct {
	name     string
	affinity bool // looks at keys: a request without any goes by load
	explores bool // narrows the candidates, so some requests must not be narrowed
	pending  bool // under count_pending auto, marks without an answer match
	spreads  bool // asks for the demand per key and for the age of what a fill evicts
	choose   chooser
}{
	StickyUntilSaturated: {"sticky-until-saturated", true, true, true, false, stickyUntilSaturated},
	QueuePriced:          {"queue-priced", true, true, false, false, queuePriced},
	Priced:               {"priced", true, false, true, false, priced},
	AlwaysSticky:         {"always-sticky", true, true, true, false, alwaysSticky},
	LeastLoad:            {"least-load", false, false, true, false, leastLoad},
	RoundRobin:           {"round-robin", false, false, true, false, roundRobin},
	WeightedBlend:        {"weighted-blend", true, false, true, false, weightedBlend},
	PricedSpread:         {"priced-spread", true, false, true, true, pricedSpread},
}

// String returns the name in the configuration.
func (p Policy) String() string { return policies[p].name }

// Spreads says whether the policy knows when no backend has room, so that a request may
// be answered ReasonNoRoom.
func (p Policy) Spreads() bool { return policies[p].spreads }

// ParsePolicy finds a policy by its name.
func ParsePolicy(name string) (Policy, error) {
	for p := range policies {
		if policies[p].name == name {
			return Policy(p), nil
		}
	}
	return 0, fmt.Errorf("routing.policy must be one of %s, got %q", policyNames(), name)
}

// policyNames lists the names for an error text.
func policyNames() string {
	var names []string
	for p := range Policy(NumPolicies) {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// countsPending says whether marks without an answer count as matches.
func (p *Params) countsPending() bool {
	switch p.CountPending {
	case PendingYes:
		return true
	case PendingNo:
		return false
	}
	return policies[p.Policy].pending
}
