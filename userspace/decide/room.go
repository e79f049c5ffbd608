package decide

import (
	"math"

	"github.com/tautline/tautline/userspace/load"
)

// A request that is sent where there is no memory for it waits in that engine's queue
// while others run empty, and what was cached for it is evicted by those before it. A
// caller that can keep requests instead (Request.MayWait) decides late, and can send
// those first that have least to prefill.

// roomSpare is the share of the KV memory that counts as taken. The cached contexts of
// conversations that pause live in what running requests leave, and answers grow.
const roomSpare = 0.05

// room returns how many KV tokens are left, by the latest poll and what own requests
// have taken and given back since. All there is where the engine does not say.
func room(capacity, held, since, claimed int64, known bool) int64 {
	if !known || capacity <= 0 {
		return math.MaxInt64
	}
	return int64((1-roomSpare)*float64(capacity)) - held - since - claimed
}

// fills says whether it is the prompt that takes the memory. Where it needs less than the
// answer that is expected, answers that run fill the memory as they grow, and the prompt
// would wait for nothing.
func fills(q *Question) bool { return float64(q.Needs) >= q.Output }

// crowded says whether no candidate has room for so many tokens, and one may come to
// have it: for more than an empty cache has nobody need wait, the engine will say so.
func crowded(cs []Candidate, needs int64) bool {
	some := false
	for i := range cs {
		e := &cs[i]
		if room(e.Capacity, e.Held, e.Since, e.Claimed, e.HasKV) >= needs {
			return false
		}
		some = some || room(e.Capacity, 0, 0, 0, true) >= needs
	}
	return some
}

// Room returns how many KV tokens the backend has left that has most, of those that
// take requests for the model, and how many do; math.MaxInt64 where fewer than two do,
// for then no request is answered ReasonNoRoom. One that was need not be asked about
// again while Room is less than its Decision.Needs and as many take requests. Other
// requests may have changed what it needs by then; what it has waited bounds the harm.
func (f *Fleet) Room(name string, now Instant) (tokens int64, takes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serving(name)
	f.load.Views(f.slots, now, f.views)
	tokens = math.MinInt64
	for i := range f.slots {
		if v := &f.views[i]; v.Refusal == load.Admitted {
			tokens = max(tokens, room(v.Capacity, v.HeldTok, v.Since, v.Claimed, v.HasKV))
			takes++
		}
	}
	if takes < 2 {
		tokens = math.MaxInt64
	}
	return tokens, takes
}
