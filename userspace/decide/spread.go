package decide

import (
	"sort"
	"time"

	"github.com/tautline/tautline/userspace/index"
)

// spread adds to the question and to the candidates what a policy that spreads
// asks for.
func (f *Fleet) spread(r *Request, q *Question, now Instant) {
	q.Cover, q.Reuse = r.Cover, f.reuse
	if whole := r.whole(q.Blocks); whole > 0 {
		q.PerBlock = float64(q.Tokens) / whole
	}
	f.fills = f.fills[:0]
	for i := range f.cands {
		c := &f.cands[i]
		q.InFlight += c.Requests
		// The tail of a prompt has no key and takes room all the same.
		f.fills = append(f.fills, index.Fill{
			Slot: c.Slot, Keys: max(q.Keys-c.Run, 1), Blocks: max(q.Blocks-c.Blocks, 1), Tier: f.backends[c.Slot].first,
		})
	}
	f.index.Evicts(f.fills, now)
	for i := range f.cands {
		f.cands[i].Age, f.cands[i].Evicts = f.fills[i].Age, f.fills[i].Evicts
	}
	// Who begins with a key begins with all before it, so their numbers fall.
	keys := keysOf(r)
	shared := r.covered(sort.Search(len(keys), func(i int) bool { return f.demand.of(keys[i]) == 0 }))
	q.Needs = max(q.Tokens-int64(q.PerBlock*float64(shared)), 0)
	f.needs = q.Needs
	f.begun = f.begun[:0]
	for _, k := range keys {
		n := f.demand.of(k)
		if int(n)*len(f.cands) < max(q.InFlight, 1) {
			break // nor do those that begin with more of the prompt fill one backend
		}
		f.begun = append(f.begun, n)
	}
	q.Begun = f.begun
}

// reused learns how long after its latest use a match is used again. The marks
// of the decision must not be set yet.
func (f *Fleet) reused(r *Request, d *Decision, now Instant) {
	if !policies[d.Policy].spreads || d.Run == 0 {
		return
	}
	if age, held := f.index.Age(d.Slot, r.Keys[d.Run-1], now); held {
		f.reuse = time.Duration(reuseDecay*float64(f.reuse) + (1-reuseDecay)*float64(age))
	}
}
