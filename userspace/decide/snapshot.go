package decide

import "github.com/tautline/tautline/userspace/load"

// BackendState is one backend as status and metrics show it.
type BackendState struct {
	Slot     int
	Spec     Spec // its Models are what it serves now
	Admitted bool
	Refusal  load.Refusal // why not
	Until    Instant      // end of its ejection, when ejected
	Trial    bool         // admitted so that the next request shows whether it serves again

	Queue        int  // worst polled queue depth in the window
	Measured     bool // Queue is known
	Waiting      int  // of the latest poll in the window
	Running      int
	KVUse        float64
	HasKV        bool
	CapacityTok  int64 // KV capacity in tokens that the engine reports; 0 = it does not
	PollFailures int   // in a row

	InFlight int   // own requests
	Decoding int   // of them, past their first token
	Uncached int64 // own uncached prompt tokens in flight

	IndexEntries  int     // keys held
	IndexCapacity int     // in blocks; 0 = bounded in keys
	SizeFactor    float64 // of it, to what the engine or the configuration says; 1 but under a policy that spreads

	Picks         [NumOutcomes]uint64 // requests sent there
	MatchedTokens int64               // of their prompts: expected in the cache
	PromptTokens  int64               // of their prompts: all
	CachedTokens  int64               // that the engine reported as served from its cache
	UsageTokens   int64               // that the engine reported as prompt, where CachedTokens is from
}

// Snapshot appends the state of every backend to dst[:0], in the order of slots.
func (f *Fleet) Snapshot(now Instant, dst []BackendState) []BackendState {
	f.mu.Lock()
	defer f.mu.Unlock()
	dst = dst[:0]
	for slot := range f.backends {
		b := &f.backends[slot]
		if !b.live {
			continue
		}
		v, e := f.load.View(slot, now), f.load.Engine(slot)
		dst = append(dst, BackendState{
			Slot: slot, Spec: b.spec,
			Admitted: v.Refusal == load.Admitted, Refusal: v.Refusal, Until: v.Until, Trial: v.Trial,
			Queue: v.Queue, Measured: v.Measured, Waiting: v.Waiting, Running: v.Running,
			KVUse: v.KVUse, HasKV: v.HasKV, CapacityTok: e.CapacityTok, PollFailures: e.PollFailures,
			InFlight: v.Requests, Decoding: v.Decoding, Uncached: v.Tokens,
			IndexEntries: f.index.Len(slot), IndexCapacity: b.blocks, SizeFactor: f.sizeFactor(b),
			Picks: b.picks, MatchedTokens: b.matched, PromptTokens: b.prompt,
			CachedTokens: b.reportedCached, UsageTokens: b.reportedPrompt,
		})
	}
	return dst
}

// Counts are the totals of a fleet, backends that left included.
type Counts struct {
	Decisions [NumPolicies][NumOutcomes]uint64
	Refusals  [NumReasons]uint64 // outcome none, by reason
	InFlight  int                // tickets that did not end
}

// Counts returns the totals.
func (f *Fleet) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Counts{f.decisions, f.refusals, f.flights}
}
