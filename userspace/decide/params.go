package decide

import (
	"fmt"
	"math"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// Load is what "by load" compares.
type Load uint8

// The loads.
const (
	// TokenLoad: uncached prompt tokens in flight plus what this request would
	// add. For traffic bound by prefill.
	TokenLoad Load = iota
	// ActiveRequests: own requests in flight. For traffic bound by decode.
	ActiveRequests

	numLoads = int(ActiveRequests) + 1
)

// String returns the name in the configuration.
func (l Load) String() string { return [...]string{"token-load", "active-requests"}[l] }

// ParseLoad finds a load by its name.
func ParseLoad(name string) (Load, error) {
	for l := range Load(numLoads) {
		if l.String() == name {
			return l, nil
		}
	}
	return 0, fmt.Errorf("routing.load must be token-load or active-requests, got %q", name)
}

// Compare is what sticky-until-saturated holds against tau.
type Compare uint8

// The comparisons.
const (
	Gap      Compare = iota // best sticky load minus best other load
	Absolute                // best sticky load itself, as the article's text has it

	numCompares = int(Absolute) + 1
)

// String returns the name in the configuration.
func (c Compare) String() string { return [...]string{"gap", "absolute"}[c] }

// ParseCompare finds a comparison by its name.
func ParseCompare(name string) (Compare, error) {
	for c := range Compare(numCompares) {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("routing.tau_compare must be gap or absolute, got %q", name)
}

// CountPending says whether keys whose request has no answer yet match.
type CountPending uint8

// The choices. PendingAuto leaves it to the policy.
const (
	PendingAuto CountPending = iota
	PendingYes
	PendingNo

	numCountPendings = int(PendingNo) + 1
)

// String returns the name in the configuration.
func (c CountPending) String() string { return [...]string{"auto", "true", "false"}[c] }

// ParseCountPending finds a choice by its name.
func ParseCountPending(name string) (CountPending, error) {
	for c := range CountPending(numCountPendings) {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("prefix_affinity.count_pending must be auto, true or false, got %q", name)
}

// TokensPerBlock is what a matched block is taken to save under queue-priced,
// as in the seed: 256 bytes at four bytes a token.
const TokensPerBlock = key.BlockBytes / 4

// Params are the settings of a decision. See Default and Validate.
type Params struct {
	Policy     Policy
	Load       Load
	TauCompare Compare

	// tau = PeakPrefill x TTFTTolerance: how much deeper in uncached tokens the
	// best sticky backend may be before load decides.
	PeakPrefill   float64 // tokens per second that one backend prefills at most
	TTFTTolerance time.Duration

	Threshold    float64 // share of the keyed prompt that a sticky run covers
	MinBlocks    int     // a run that covers fewer blocks never qualifies
	EnoughBlocks int     // a run that covers as many qualifies under queue-priced
	Exploration  float64 // share of requests that skip affinity
	CountPending CountPending
	SharedKeys   bool // other agents make the same keys of a prompt, so that it has the same home for all (priced-spread)

	// The price of a match under queue-priced.
	PrefillRate          float64 // tokens per second
	QueuedRequestSeconds float64 // wait that one queued request stands for

	// priced and priced-spread: what a fill costs others, how many running answers
	// it stalls at most, and what one more answer slows the others per token. Under
	// priced-spread three quarters of the cap are that of an empty KV cache, and
	// delta counts double.
	Kappa, Cap, Delta float64
}

// Default returns the settings of the design.
func Default() Params {
	return Params{
		Policy:               StickyUntilSaturated,
		PeakPrefill:          15928,
		TTFTTolerance:        18 * time.Second,
		Threshold:            0.8,
		MinBlocks:            4,
		EnoughBlocks:         32,
		Exploration:          0.02,
		PrefillRate:          10000,
		QueuedRequestSeconds: 2,
		Kappa:                2,
		Cap:                  16,
		Delta:                2,
	}
}

// Tau returns the saturation limit in uncached prompt tokens.
func (p *Params) Tau() int64 {
	return int64(math.Round(p.PeakPrefill * p.TTFTTolerance.Seconds()))
}

// Worth returns how many queued requests a match of so many blocks is worth
// under queue-priced: the prefill it saves over the wait per queued request.
func (p *Params) Worth(blocks int) float64 {
	return float64(blocks) * TokensPerBlock / p.PrefillRate / p.QueuedRequestSeconds
}

// Validate reports the first setting that cannot work, by its name in the
// configuration.
func (p Params) Validate() error {
	switch {
	case int(p.Policy) >= NumPolicies:
		return fmt.Errorf("routing.policy must be one of %s, got number %d", policyNames(), p.Policy)
	case int(p.Load) >= numLoads:
		return fmt.Errorf("routing.load must be token-load or active-requests, got number %d", p.Load)
	case int(p.TauCompare) >= numCompares:
		return fmt.Errorf("routing.tau_compare must be gap or absolute, got number %d", p.TauCompare)
	case int(p.CountPending) >= numCountPendings:
		return fmt.Errorf("prefix_affinity.count_pending must be auto, true or false, got number %d", p.CountPending)
	case !positive(p.PeakPrefill):
		return fmt.Errorf("routing.peak_prefill_tokens_per_second must be positive, got %v", p.PeakPrefill)
	case p.TTFTTolerance < 0:
		return fmt.Errorf("routing.ttft_tolerance must not be negative, got %v", p.TTFTTolerance)
	case p.PeakPrefill*p.TTFTTolerance.Seconds() > 1<<62:
		return fmt.Errorf("routing.peak_prefill_tokens_per_second x routing.ttft_tolerance is too large: %v x %v", p.PeakPrefill, p.TTFTTolerance)
	case !(p.Threshold > 0 && p.Threshold <= 1):
		return fmt.Errorf("prefix_affinity.threshold must be in (0, 1], got %v", p.Threshold)
	case p.MinBlocks < 1:
		return fmt.Errorf("prefix_affinity.min_blocks must be at least 1, got %d", p.MinBlocks)
	case p.EnoughBlocks < p.MinBlocks:
		return fmt.Errorf("prefix_affinity.enough_blocks must be at least min_blocks (%d), got %d", p.MinBlocks, p.EnoughBlocks)
	case !(p.Exploration >= 0 && p.Exploration <= 1):
		return fmt.Errorf("prefix_affinity.exploration must be in [0, 1], got %v", p.Exploration)
	case !positive(p.PrefillRate):
		return fmt.Errorf("prefix_affinity.prefill_tokens_per_second must be positive, got %v", p.PrefillRate)
	case !positive(p.QueuedRequestSeconds):
		return fmt.Errorf("prefix_affinity.queued_request_seconds must be positive, got %v", p.QueuedRequestSeconds)
	case !notNegative(p.Kappa):
		return fmt.Errorf("routing.priced.kappa must not be negative, got %v", p.Kappa)
	case !notNegative(p.Cap):
		return fmt.Errorf("routing.priced.cap must not be negative, got %v", p.Cap)
	case !notNegative(p.Delta):
		return fmt.Errorf("routing.priced.delta must not be negative, got %v", p.Delta)
	}
	return nil
}

// positive and notNegative are false for NaN and infinity.
func positive(x float64) bool    { return x > 0 && x <= math.MaxFloat64 }
func notNegative(x float64) bool { return x >= 0 && x <= math.MaxFloat64 }
