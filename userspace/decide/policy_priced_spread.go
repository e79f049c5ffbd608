package decide

import (
	"math"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
)

// The constants of priced-spread. They were picked in simulation, on one grid
// of workloads; DECISIONS.md has the table and how far they can be moved.
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
	// spreadSure is by how many standard deviations a share must be seen to
	// exceed what one more copy asks for.
	spreadSure = 3
	// spreadCap is how much of Params.Cap an empty KV cache has, and spreadFull
	// bounds the KV use that the cap is divided by.
	spreadCap  = 0.75
	spreadFull = 0.99
	// spreadOver is the price of a token of KV memory that there will not be, where
	// answers have spreadLong tokens or more. Shorter ones soon give it back.
	spreadOver = 1.5
	spreadLong = 100
	// A request in flight slows the others like spreadAnswer of priced; so do
	// spreadHeld tokens of context.
	spreadAnswer = 2
	spreadHeld   = 30000
)

// pricedSpread is priced with changes to what others pay for a request:
//
//	L + m + w (kappa + x) + (w - u) min(d, 3/4 cap / (1-K)) + u min(d, 2) + delta o (2 a + H/30000) + 1.5 y min(o/100, 1)
//
// L, m, d, o, a, kappa, cap and delta are those of priced, but requests of others count
// in a and d, and m is less what they have probably left there (home.go). w is m without the
// copies that ought to exist: if a share s of the other requests in flight
// begins with a key, s times the backends ought to hold it, and one that makes
// such a copy is not charged for it. Otherwise a prompt that all share stays
// where it was first, and all with it. The share is that of a sample, so s is
// what it exceeds for certain: three standard deviations less.
//
// u is what must be filled wherever the request goes: the smallest m of all, at
// most 8,192 tokens and at most w. It stalls answers anyway; the one step that
// it takes is no reason to queue behind a backend that runs one answer less.
//
// x is between 0 and 1: e^(-age/4R), where age is how long ago the content was
// used that the fill would evict, and R the mean age at which content is used
// again; 0 where there is room. It keeps fills away from live content.
//
// K is the polled share of the KV cache that running requests hold, H the same
// in tokens. An answer is slowed by the context that is read beside it in each
// step, and one that is stalled holds its memory longer: the fuller the cache,
// the sooner a request waits for that.
//
// y is how much of the memory that this prompt needs of its own there will not be:
// what is held and what the prompts on their way there and this one will take are
// more than there is by so much, but y is no more than this one needs. The engine
// would have to let it wait, or answers would soon be preempted and filled again.
// Answers of a few tokens are in nobody's way for long.
//
// Where all would have to fill the same, and little, the cost is all answers. There
// their numbers are not kept equal, and a backend whose engine has requests waiting
// for memory comes last, whatever it costs; see outOfStep.
//
// Where others send requests to the same backends, one that is about as good as the
// cheapest is taken; see homeward and leftAlone.
//
// A backend that does not say K, H or its size, or whose polls show no queue, is taken to
// be like the mean of those that do.
func pricedSpread(c choice, cs []Candidate) (int, Outcome, Reason) {
	p := c.p
	run, blocks := 0, 0
	least := int64(spreadBatch)
	var use, held, over, others, served mean
	for i := range cs {
		e := &cs[i]
		least = min(least, e.fill())
		if e.Run > run {
			run, blocks = e.Run, e.Blocks
		}
		use.add(e.KVUse, e.HasKV)
		held.add(float64(e.Held), e.saysHeld())
		others.add(float64(e.Others), e.Measured && !e.Gateway)
		served.add(float64(e.Served), e.Measured && !e.Gateway)
		y, known := e.lacks(&c.q)
		over.add(y, known)
	}
	scarce := spreadOver * min(c.q.Output/spreadLong, 1)
	var o owed
	c.owe(&o, cs)
	for i := range cs {
		e := &cs[i]
		m, d := float64(e.fill()), float64(e.Decoding)+served.or(float64(e.Served), e.Measured || e.Gateway)
		w := max(m-o.by(e.Run), 0)
		u := min(w, float64(least))
		k := min(max(use.or(e.KVUse, e.HasKV), 0), spreadFull)
		h := held.or(float64(e.Held), e.saysHeld())
		e.Cost = float64(max(e.Tokens, 0)) + m + w*(p.Kappa+c.evicts(e, w)) +
			(w-u)*min(d, spreadCap*p.Cap/(1-k)) + u*min(d, spreadStalls) +
			p.Delta*c.q.Output*(spreadAnswer*(float64(e.Requests)+others.or(float64(e.Others), e.Measured || e.Gateway))+h/spreadHeld) +
			scarce*over.or(e.lacks(&c.q))
	}
	if indifferent(cs) {
		return c.outcome(cs, c.outOfStep(cs), run, blocks)
	}
	switch {
	case !c.q.Shared && !c.q.Told:
		return c.compared(cs, run, blocks)
	case c.q.Unlike:
		return c.outcome(cs, c.leftAlone(cs), run, blocks)
	}
	return c.outcome(cs, c.homeward(cs), run, blocks)
}

// evicts is x, the price of what a fill evicts. Not worked out where nothing is filled.
func (c choice) evicts(e *Candidate, fill float64) float64 {
	if fill <= 0 || !e.Evicts || c.q.Reuse <= 0 {
		return 0
	}
	return spreadAge * math.Exp(-float64(e.Age)/(spreadIdle*float64(c.q.Reuse)))
}

// saysHeld is whether Held is known: an engine may report its KV use without the
// size of its cache.
func (c *Candidate) saysHeld() bool { return c.HasKV && (c.Held > 0 || c.KVUse <= 0) }

// lacks is how much of the KV memory that the prompt needs there will not be.
func (c *Candidate) lacks(q *Question) (tokens float64, known bool) {
	if c.Capacity <= 0 || !c.HasKV {
		return 0, false
	}
	return float64(min(max(c.Held+c.Claimed+q.Needs-c.Capacity, 0), q.Needs)), true
}

// mean is that of the values that are known.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64, known bool) {
	if known {
		m.sum += v
		m.n++
	}
}

// or returns v, or the mean in place of what is not known, 0 of none.
func (m *mean) or(v float64, known bool) float64 {
	if known || m.n == 0 {
		return v
	}
	return m.sum / float64(m.n)
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
	seen, wanted := int32(-1), 0.0
	for i, begun := range c.q.Begun[:n] {
		holders -= ends[i]
		// More than all are in flight while those of a backend that left end.
		if begun != seen { // rarely: keys of one system prompt share their number
			b, all := float64(min(int(begun), c.q.InFlight)), float64(c.q.InFlight)
			seen, wanted = begun, float64(len(cs))*(b-spreadSure*math.Sqrt(b*(1-b/all)))/all
		}
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
