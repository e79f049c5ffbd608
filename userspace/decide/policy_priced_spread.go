package decide

import (
	"math"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
)

// The constants of priced-spread. They were picked in simulation, on one grid
// of workloads; DECISIONS.md has the table.
const (
	// spreadBatch is how much one step of an engine prefills, in tokens, and
	// spreadStalls how many running answers that one step is charged for.
	spreadBatch  = 8192
	spreadStalls = 2
	// spreadAge is what kappa rises by where the fill evicts what was used just
	// now; at spreadIdle times the mean age of reuse it rises by 1/e of that.
	spreadAge  = 1
	spreadIdle = 4
	// firstReuse and reuseDecay start and move the mean age of reuse.
	firstReuse = 10 * time.Second
	reuseDecay = 0.99
)

// pricedSpread is priced with three changes to what others pay for a fill:
//
//	L + m + w (kappa + x) + (w - u) min(d, cap) + u min(d, 2) + delta o a
//
// L, m, d, o, a, kappa, cap and delta are those of priced. w is m without the
// copies that ought to exist: if a share s of the other requests in flight
// begins with a key, s times the backends ought to hold it, and one that makes
// such a copy is not charged for it. Otherwise a prompt that all share stays
// where it was first, and all with it.
//
// u is what must be filled wherever the request goes: the smallest m of all, at
// most 8,192 tokens and at most w. It stalls answers anyway; the one step that
// it takes is no reason to queue behind a backend that runs one answer less.
//
// x is between 0 and 1: e^(-age/4R), where age is how long ago the content was
// used that the fill would evict, and R the mean age at which content is used
// again; 0 where there is room. It keeps fills away from live content.
func pricedSpread(c choice, cs []Candidate) (int, Outcome, Reason) {
	p := c.p
	run, blocks := 0, 0
	least := int64(spreadBatch)
	for i := range cs {
		e := &cs[i]
		least = min(least, e.Uncached)
		if e.Run > run {
			run, blocks = e.Run, e.Blocks
		}
	}
	var o owed
	c.owe(&o, cs)
	for i := range cs {
		e := &cs[i]
		m, d := float64(e.Uncached), float64(e.Decoding)
		w := max(m-o.by(e.Run), 0)
		u := min(w, float64(least))
		x := 0.0
		if e.Evicts && c.q.Reuse > 0 {
			x = spreadAge * math.Exp(-float64(e.Age)/(spreadIdle*float64(c.q.Reuse)))
		}
		e.Cost = float64(max(e.Tokens, 0)) + m + w*(p.Kappa+x) +
			(w-u)*min(d, p.Cap) + u*min(d, spreadStalls) +
			p.Delta*c.q.Output*float64(e.Requests)
	}
	return c.compared(cs, run, blocks)
}

// owed is how many tokens of a prompt lack copies that ought to exist.
type owed struct {
	keys int                      // the further keys lack none
	upTo [key.MaxKeys + 1]float64 // upTo[n] tokens of what the first n keys cover
}

// by returns how many of these tokens a backend lacks that holds run keys.
func (o *owed) by(run int) float64 {
	return o.upTo[o.keys] - o.upTo[min(run, o.keys)]
}

// owe works out what is owed. A copy ought to be made while those that there
// are and one more are no more than the share of the requests times the
// backends. The share falls along the prompt, and so does the number of holders.
func (c choice) owe(o *owed, cs []Candidate) {
	n := min(len(c.q.Begun), key.MaxKeys)
	if n == 0 || c.q.InFlight <= 0 {
		return
	}
	var ends [key.MaxKeys + 1]int // how many runs end after so many keys
	for i := range cs {
		ends[min(cs[i].Run, n)]++
	}
	holders, tokens := len(cs), 0.0
	for i, begun := range c.q.Begun[:n] {
		holders -= ends[i]
		// More than all are in flight while those of a backend that left end.
		wanted := float64(len(cs)*min(int(begun), c.q.InFlight)) / float64(c.q.InFlight)
		if wanted < 1 {
			return
		}
		if float64(holders+1) <= wanted {
			tokens += c.q.PerBlock * float64(index.Covered(i+1, c.q.Cover)-index.Covered(i, c.q.Cover))
		}
		o.keys = i + 1
		o.upTo[o.keys] = tokens
	}
}
