package decide

import (
	"hash/fnv"

	"github.com/tautline/tautline/userspace/key"
)

const (
	// homeHeld is the share of the rest of a prompt that its home is taken to hold.
	homeHeld = 0.5
	// homeFew is how many backends at most hold what only few prompts begin with.
	homeFew = 2
	// homeFar is how many fills more than the cheapest a backend may cost that others
	// leave alone, where prompts are unlike each other.
	homeFar = 5
	// homeSame is how many requests of others more are as good as none.
	homeSame = 0.5
	// homeAge is by how much the price of what is evicted may exceed that at the cheapest.
	homeAge = 0.05
)

// share adds to the question and to the candidates what a policy that spreads asks for
// where others send requests to the same backends. means is the model's number.
func (f *Fleet) share(r *Request, q *Question, means int) {
	keys := keysOf(r)
	var sum others
	takes, told, deep, holders := 0, 0, 0, 0
	for i := range f.cands {
		c := &f.cands[i]
		if !c.Takes() || c.Gateway {
			continue
		}
		b := &f.backends[c.Slot]
		takes++
		sum.join(&b.others)
		told += b.told
		c.Theirs = b.theirs()
		switch {
		case c.Run > deep:
			deep, holders = c.Run, 1
		case c.Run == deep:
			holders++
		}
	}
	if takes < 2 || len(keys) == 0 {
		return
	}
	if q.Shared, q.Told = sum.some(), told > 0; !q.Shared && !q.Told {
		return
	}
	q.Unlike = means < len(f.repeats) && f.repeats[means].few()
	first := keys[min(deep, len(keys)-1)]
	home := -1
	for i := range f.cands {
		c := &f.cands[i]
		if c.Takes() && !c.Gateway {
			c.Home = rendezvous(first, f.backends[c.Slot].id)
			if home < 0 || c.Home > f.cands[home].Home {
				home = i
			}
		}
	}
	if deep == len(keys) || !q.Shared || q.Unlike {
		return
	}
	c := &f.cands[home]
	// Where one or two hold the longest run, others have sent them what follows as well. And
	// where the prompt will wait for memory, what was left is about to be evicted.
	if (deep == 0 || holders > homeFew) && !c.short() && !c.full(q) {
		c.Left = int64(homeHeld * float64(c.Uncached))
	}
}

// rendezvous is the weight of a backend for a key: the highest one is the key's home. All
// agents that call the backends by the same names find the same (Thaler and Ravishankar,
// "Using name-based mappings to increase hit rates", 1998).
func rendezvous(k key.Key, id uint64) uint64 {
	z := uint64(k) ^ id
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// identity is a hash of a backend's name that is the same in every agent.
func identity(s *Spec) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Site + "/" + s.Name))
	return h.Sum64()
}

// full says whether the backend has no memory for what the prompt needs of its own, and
// will not have it soon.
func (c *Candidate) full(q *Question) bool {
	y, known := c.lacks(q)
	return known && y > 0 && q.Output >= spreadLong && fills(q)
}

// homeward returns, of what is about as good as the cheapest, what others would choose for
// the same prompt: of those that cost no more than the fill above it and evict nothing much
// younger. What others sent in the meantime is not known, and where all take the cheapest
// it is not cheap for long.
func (c choice) homeward(cs []Candidate) int {
	pick := c.lowest(cs, false)
	low := cs[pick]
	fill := float64(low.fill())
	most, x := low.Cost+fill, c.evicts(&low, fill)+homeAge
	for i := range cs {
		e := &cs[i]
		if e.Home > cs[pick].Home && e.fill() == low.fill() && e.Tokens <= low.Tokens && e.Cost <= most && c.evicts(e, fill) <= x {
			pick = i
		}
	}
	return pick
}

// leftAlone returns the cheapest of those that others leave alone most. Where hardly a
// prompt begins like another nobody gains from going where others would, nor does it matter
// what is evicted, so it may cost a few fills more than the cheapest of all. As all agents
// do so, each comes to have backends that the others leave to it.
func (c choice) leftAlone(cs []Candidate) int {
	pick := c.lowest(cs, false)
	low := cs[pick]
	all := 0
	for i := range cs {
		all += cs[i].Requests + cs[i].Others
	}
	most, busy := low.Cost+homeFar*float64(low.fill()), (1+spreadLoose)*float64(all)/float64(len(cs))+1
	fill := (1 + repeatsFew) * float64(low.fill()) // some hold what little repeats
	near := func(e *Candidate) bool {
		return e.Home > 0 && e.Measured && e.Tokens <= low.Tokens && float64(e.fill()) <= fill && e.Cost <= most &&
			float64(e.Requests+e.Others) <= busy && !e.full(&c.q) && !e.short()
	}
	fewest := low.Theirs
	for i := range cs {
		if e := &cs[i]; e.Theirs < fewest && near(e) {
			fewest = e.Theirs
		}
	}
	fewest += homeSame
	if low.Theirs <= fewest {
		return pick
	}
	return c.lowestOf(cs, func(e *Candidate) bool { return e.Theirs <= fewest && near(e) })
}
