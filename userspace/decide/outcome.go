package decide

// Outcome is the kind of a decision, as it is counted.
type Outcome uint8

// The outcomes. The first five are the seed's; they are counted by
// grid_route_prefix_affinity_total. The others are not affinity's doing.
const (
	NotApplicable Outcome = iota // no keys, or the policy does not look at them
	Sticky                       // stays where its prefix is
	NoMatch                      // nobody holds enough of it: by load
	LoadOverride                 // held, but load decided
	Exploration                  // skipped affinity so that a second backend learns the prompt
	Lone                         // one candidate: nothing to decide
	Pinned                       // a stored id named the backend
	None                         // nobody can take it

	NumOutcomes = int(None) + 1
)

// String returns the label value.
func (o Outcome) String() string {
	return [...]string{
		"not_applicable", "sticky", "no_match", "load_override", "exploration",
		"lone", "pinned", "none",
	}[o]
}

// Affinity says whether the outcome counts toward the affinity metric.
func (o Outcome) Affinity() bool { return o <= Exploration }

// Reason refines an outcome.
type Reason uint8

// The reasons.
const (
	ReasonNone          Reason = iota // the outcome says it all
	ReasonNoKeys                      // not_applicable: see Request.Reason
	ReasonPolicy                      // not_applicable: the policy does not look at keys
	ReasonSaturated                   // load_override: the sticky set is too far behind
	ReasonUnmeasured                  // load_override: unmeasured sticky gave way to measured
	ReasonCheaper                     // load_override: another backend costs less in all
	ReasonMissingSignal               // sticky: a load that the gate needs is not known
	ReasonEjectedLone                 // lone: ejected, but there is no other
	ReasonEjectedAll                  // lone: ejected for its errors, but so are all that can be reached
	ReasonUnknownModel                // none, 404: no backend serves the model
	ReasonNotAdmitted                 // none, 503: every backend that serves it refuses
	ReasonTried                       // none: every backend that admits failed this request
	ReasonPinGone                     // none, 404: the named backend is gone or serves another model
	ReasonPinRefused                  // none, 503: the named backend admits no new request
	ReasonNoRoom                      // none, and not for good: no backend has KV memory for it now, see Request.MayWait

	NumReasons = int(ReasonNoRoom) + 1
)

// String returns the label value.
func (r Reason) String() string {
	return [...]string{
		"none", "no_keys", "policy", "saturated", "unmeasured", "cheaper",
		"missing_signal", "ejected_lone", "ejected_all", "unknown_model", "not_admitted", "tried",
		"pin_gone", "pin_refused", "no_room",
	}[r]
}

// Decision is where a request goes and why.
type Decision struct {
	Slot         int // -1 = nowhere
	Outcome      Outcome
	Reason       Reason
	Policy       Policy
	Run          int   // leading keys that the chosen backend holds
	Keys         int   // keys of the request
	Uncached     int64 // prompt tokens that the chosen backend must prefill, by what was sent there
	Left         int64 // of them, what other agents have probably left there
	PromptTokens int64
	Needs        int64 // KV tokens that it needs of its own, under a policy that spreads
}
