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
)

// share adds to the question and to the candidates what a policy that spreads asks for
// where others send requests to the same backends.
func (f *Fleet) share(r *Request, q *Question) {
	keys := keysOf(r)
	var sum others
	takes, deep, holders := 0, 0, 0
	for i := range f.cands {
		c := &f.cands[i]
		b := &f.backends[c.Slot]
		if !c.Takes() || b.gateway {
			continue
		}
		takes++
		sum.join(&b.others)
		switch {
		case c.Run > deep:
			deep, holders = c.Run, 1
		case c.Run == deep:
			holders++
		}
	}
	if q.Shared = takes > 1 && len(keys) > 0 && sum.some(); !q.Shared {
		return
	}
	first := keys[min(deep, len(keys)-1)]
	home := -1
	for i := range f.cands {
		c := &f.cands[i]
		if b := &f.backends[c.Slot]; c.Takes() && !b.gateway {
			c.Home = rendezvous(first, b.id)
			if home < 0 || c.Home > f.cands[home].Home {
				home = i
			}
		}
	}
	if deep == len(keys) {
		return
	}
	c := &f.cands[home]
	// Where one or two hold the longest run, others have sent them what follows as well. And
	// where requests wait for memory, what was left is about to be evicted.
	if (deep == 0 || holders > homeFew) && !c.short() {
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

// homeward returns, of those that would have to fill the same as the cheapest and cost no
// more than that fill above it, the one that others would choose for the same prompt.
// What others sent in the meantime is not known, and where all take the cheapest it is
// not cheap for long.
func (c choice) homeward(cs []Candidate) int {
	pick := c.lowest(cs, false)
	fill := cs[pick].fill()
	most := cs[pick].Cost + float64(fill)
	for i := range cs {
		if e := &cs[i]; e.fill() == fill && e.Cost <= most && e.Home > cs[pick].Home {
			pick = i
		}
	}
	return pick
}
