package policies

import (
	"math"

	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/key"
)

// Lab is a cost formula under trial, with books and memory of its own. With the
// zero values of Age, Batch and Spread and the constants of decide it is
// `priced`:
//
//	L + m + (Kappa + Age x) m + min(d, Cap) (m - u) + min(d, First) u + Delta o a
//
// L, m, d, o and a as in decide's priced. x is e^(-age/(4 R)) of the least
// recent tokens in the backend's memory, which the fill would evict: R is the
// mean age at which tokens are used again, so x is near 1 where live content
// would go and near 0 where there is room or only old content goes. u, at most
// Batch, is what must be filled wherever the request goes: it stalls somebody
// anyway, so the number of answers that it stalls counts up to First only.
//
// With Spread, the price for others (all but L, the first m and the last term) is not asked for
// tokens that the backend ought to hold: of a prefix that a share s of the other
// requests in flight begin with, s times the backends ought to have a copy. A
// prompt shared by all is then spread at once, one that is a conversation's own
// is not.
type Lab struct {
	Kappa, Cap, Delta float64
	Age               float64
	Idle              float64 // R is multiplied by it; 0 = 4
	Spread            bool
	Batch, First      float64
}

// Policy gives the formula a name.
func (l Lab) Policy(name string) Policy {
	return Policy{name, func(s Setup) Chooser {
		c := &lab{books: newBooks(s), Lab: l, block: s.BlockTokens, answers: 1, tokens: 300, reuse: 10}
		if c.Idle == 0 {
			c.Idle = 4
		}
		for i := range s.Backends {
			c.memory = append(c.memory, newTree(max(1, int(s.Capacity[i])/s.BlockTokens)))
		}
		c.load = make([]float64, s.Backends)
		c.decoding = make([]int, s.Backends)
		c.fill = make([]float64, s.Backends)
		c.priced = make([]float64, s.Backends)
		c.using = map[key.Key]int{}
		return c
	}}
}

type lab struct {
	books
	Lab
	block    int
	memory   []*tree
	load     []float64 // L
	decoding []int     // d
	fill     []float64 // m of the request at hand
	priced   []float64 // m that the others pay for
	runs     []int
	cost     []float64       // of the latest choice, by slot
	using    map[key.Key]int // requests in flight by key, Spread only
	total    int             // requests in flight
	held     []float64       // by Job.Index: tokens still booked, -1 = released
	answers  float64         // running mean of completion tokens
	tokens   float64
	reuse    float64 // running mean of the age of what is used again, s
}

// Route implements Chooser.
func (c *lab) Route(j *traffic.Job, now Instant) int {
	least := math.Inf(1)
	c.runs = c.runs[:0]
	for slot, t := range c.memory {
		run := t.run(j.Keys)
		c.runs = append(c.runs, run)
		c.fill[slot] = float64(j.Prompt - covered(run)*c.block)
		c.priced[slot] = c.fill[slot]
		least = min(least, c.fill[slot])
	}
	if c.Spread {
		c.waive(j)
	}
	o := c.tokens / c.answers
	c.cost = make([]float64, len(c.memory))
	slot := c.least(func(e int) float64 {
		m, d := c.priced[e], float64(c.decoding[e])
		first := 0.0
		if c.Batch > 0 {
			first = min(m, least, c.Batch)
		}
		x := 0.0
		if age, full := c.memory[e].oldest(now); full && c.Age > 0 {
			x = math.Exp(-age / (c.Idle * c.reuse))
		}
		c.cost[e] = c.load[e] + c.fill[e] + m*(c.Kappa+c.Age*x) +
			(m-first)*min(d, c.Cap) + first*min(d, c.First) + c.Delta*o*float64(c.active[e])
		return c.cost[e]
	})
	if slot < 0 {
		return -1
	}
	t := c.memory[slot]
	if run := t.run(j.Keys); run > 0 {
		age := (now - t.nodes[t.at[j.Keys[run-1]]].used).Seconds()
		c.reuse = 0.99*c.reuse + 0.01*age
	}
	t.insertAt(j.Keys, now)
	if c.Spread {
		for _, k := range j.Keys {
			c.using[k]++
		}
		c.total++
	}
	for len(c.held) <= j.Index {
		c.held = append(c.held, 0)
	}
	c.held[j.Index] = c.fill[slot]
	c.load[slot] += c.fill[slot]
	j.Believe = j.Prompt - int(c.fill[slot])
	return c.take(slot)
}

// FirstToken implements Chooser.
func (c *lab) FirstToken(j *traffic.Job, _ Instant) {
	if c.held[j.Index] >= 0 {
		c.load[j.Slot] -= c.held[j.Index]
		c.held[j.Index] = -1
		c.decoding[j.Slot]++
	}
}

// waive takes the tokens that a backend ought to hold off what others pay for.
// The share of a key falls along the prompt, and so does the number of holders.
func (c *lab) waive(j *traffic.Job) {
	if c.total == 0 {
		return
	}
	for i, k := range j.Keys {
		wanted := float64(len(c.memory)) * float64(c.using[k]) / float64(c.total)
		holders := 0
		for _, run := range c.runs {
			if run > i {
				holders++
			}
		}
		if float64(holders+1) > wanted {
			if wanted < 1 {
				return
			}
			continue
		}
		tokens := float64((covered(i+1) - covered(i)) * c.block)
		for slot, run := range c.runs {
			if run <= i {
				c.priced[slot] -= tokens
			}
		}
	}
}

func (c *lab) end(j *traffic.Job) {
	if c.Spread {
		for _, k := range j.Keys {
			if c.using[k]--; c.using[k] == 0 {
				delete(c.using, k)
			}
		}
		c.total--
	}
	if c.held[j.Index] >= 0 {
		c.load[j.Slot] -= c.held[j.Index]
	} else {
		c.decoding[j.Slot]--
	}
}

// Done implements Chooser.
func (c *lab) Done(j *traffic.Job, now Instant) {
	c.end(j)
	c.tokens = 0.99*c.tokens + float64(j.Output)
	c.answers = 0.99*c.answers + 1
	c.books.Done(j, now)
}

// Failed implements Chooser.
func (c *lab) Failed(j *traffic.Job, now Instant) {
	c.end(j)
	c.books.Failed(j, now)
}

// covered is how many blocks the first n keys cover.
func covered(n int) int {
	blocks, stride := min(n, key.DenseKeys), 1
	for i := key.DenseKeys; i < n; i++ {
		if (i-key.DenseKeys)%key.SparseRun == 0 {
			stride *= 2
		}
		blocks += stride
	}
	return blocks
}
