package decide

import (
	"math/rand/v2"
	"time"

	"github.com/tautline/tautline/userspace/load"
)

// Question is what is asked about one request.
type Question struct {
	Keys   int     // how many it has; 0 = affinity does not apply
	Blocks int     // how many blocks they cover
	Tokens int64   // of its prompt
	Output float64 // completion tokens expected (priced)
	Last   int     // slot that the model's request before this one took, -1 = none (round-robin)

	// priced-spread only. Begun[i] is how many other requests in flight begin with
	// the first i+1 keys, InFlight how many there are at all at the backends that
	// serve the model. Keys that less than one backend's share begins with may be
	// left out at the end.
	Begun    []int32
	InFlight int
	Cover    []int32       // geometry of the keys, see index.Covered
	PerBlock float64       // prompt tokens per block
	Reuse    time.Duration // mean age at which what is held is used again
	Needs    int64         // of the prompt's tokens, those that no other request in flight begins with
	Shared   bool          // other agents send requests to the same backends
	Told     bool          // they tell of them, a little later
	Unlike   bool          // hardly a prompt begins like another
	MayWait  bool          // where no backend has room for Needs the answer may be ReasonNoRoom
}

// Candidate is one backend that serves the request's model, and what is known
// about it at the instant of the decision. Decide fills in Sticky and Cost.
type Candidate struct {
	Slot    int
	Refusal load.Refusal
	Tried   bool // failed this very request already
	Erring  bool // refused for errors that it answered

	Run      int   // leading keys it holds
	Blocks   int   // how many blocks they cover
	Uncached int64 // prompt tokens it would have to prefill

	Tokens   int64 // uncached tokens in flight there; < 0 = not known
	Requests int   // own requests in flight there
	Decoding int   // of them, past their first token
	Queue    int   // worst polled queue depth in the window
	Measured bool  // Queue is known
	KVUse    float64
	HasKV    bool
	Waiting  int     // requests in the engine's queue at the latest poll (priced-spread)
	Held     int64   // KV tokens that requests hold; 0 = not known (priced-spread)
	Gateway  bool    // of several model servers (priced-spread)
	Others   int     // requests of others there at the latest poll (priced-spread)
	Served   int     // of them, those that were being served (priced-spread)
	Theirs   float64 // requests of others there, in the mean of some polls and as told (priced-spread)
	Home     uint64  // the highest is where others would send what nobody holds; see rendezvous (priced-spread)
	Left     int64   // of Uncached, what others have probably left there (priced-spread)
	Claimed  int64   // KV tokens that own prompts will take whose first token has not come (priced-spread)
	Since    int64   // how much more they hold by now (priced-spread)
	Capacity int64   // KV tokens that there are; 0 = not known (priced-spread)
	LastCold uint64  // rises with each request sent there of which nobody held anything; 0 = never (weighted-blend)
	Evicts   bool    // the fill drives something out (priced-spread)
	Age      Instant // how long ago that was used

	Sticky bool    // qualified for stickiness
	Cost   float64 // what the policy compared; smaller wins, but see outOfStep, homeward and leftAlone (priced-spread)
}

// fill is how many tokens the backend would have to prefill as far as can be guessed.
func (c *Candidate) fill() int64 { return c.Uncached - c.Left }

// Takes says whether the candidate can be chosen.
func (c *Candidate) Takes() bool { return c.Refusal == load.Admitted && !c.Tried }

// choice is what a policy decides from.
type choice struct {
	p   *Params
	q   Question
	rnd *rand.Rand
}

// Decide chooses among cs, all backends that serve the model. It reorders cs so
// that those that can be taken come first. Given the same arguments and the
// same state of rnd it always decides the same.
func Decide(p *Params, q *Question, cs []Candidate, rnd *rand.Rand) Decision {
	d := Decision{Slot: -1, Outcome: None, Policy: p.Policy, Keys: q.Keys, PromptTokens: q.Tokens}
	n := gather(cs)
	pick := 0
	switch {
	case len(cs) == 0:
		d.Reason = ReasonUnknownModel
		return d
	case n == 0:
		if pick, d.Reason = last(cs, rnd); pick < 0 {
			return d
		}
		d.Outcome = Lone
	case n == 1:
		d.Outcome = Lone
	default:
		pick, d.Outcome, d.Reason = choose(choice{p, *q, rnd}, cs[:n])
	}
	c := &cs[pick]
	d.Run, d.Uncached, d.Left, d.Needs = c.Run, c.Uncached, c.Left, q.Needs
	if q.MayWait && d.Outcome != Lone && fills(q) && crowded(cs[:n], q.Needs) {
		d.Outcome, d.Reason = None, ReasonNoRoom
		return d
	}
	d.Slot = c.Slot
	return d
}

// gather moves the candidates that can be taken to the front and counts them.
func gather(cs []Candidate) int {
	n := 0
	for i := range cs {
		if cs[i].Takes() {
			if i != n {
				cs[i], cs[n] = cs[n], cs[i]
			}
			n++
		}
	}
	return n
}

// last finds what is left when no candidate admits. The only backend of a model
// that is not draining is tried even while it is ejected: a try that fails costs
// no more than the refusal, and a try that works ends the ejection. Where all are
// ejected, those that answered errors are tried for the same reason, who has least in
// flight first: a few requests that break engines must not close them to all others.
// Of several a random one: the first may answer nothing but errors.
func last(cs []Candidate, rnd *rand.Rand) (pick int, why Reason) {
	pick, why = -1, ReasonNotAdmitted
	serving, admitted, erring, ties := 0, 0, -1, uint64(0)
	for i := range cs {
		c := &cs[i]
		switch c.Refusal {
		case load.Admitted: // then it was tried
			why = ReasonTried
			serving++
			admitted++
		case load.Ejected, load.Probing:
			serving++
			if c.Tried {
				why = ReasonTried
				continue
			}
			pick = i
			switch {
			case !c.Erring:
			case erring < 0 || c.Requests < cs[erring].Requests:
				erring, ties = i, 1
			case c.Requests == cs[erring].Requests:
				if ties++; rnd.Uint64N(ties) == 0 {
					erring = i
				}
			}
		}
	}
	switch {
	case serving == 1 && pick >= 0:
		return pick, ReasonEjectedLone
	case admitted == 0 && erring >= 0:
		return erring, ReasonEjectedAll
	}
	return -1, why
}

// choose takes the steps that all policies share, then the policy's own.
func choose(c choice, cs []Candidate) (pick int, o Outcome, why Reason) {
	policy := &policies[c.p.Policy]
	switch {
	case policy.affinity && c.q.Keys == 0:
		return c.byLoad(cs, false), NotApplicable, ReasonNoKeys
	case policy.explores && c.p.Exploration > 0 && c.rnd.Float64() < c.p.Exploration:
		return c.byLoad(cs, false), Exploration, ReasonNone
	}
	return policy.choose(c, cs)
}
