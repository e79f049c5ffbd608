package decide

import (
	"hash/fnv"

	"github.com/tautline/tautline/userspace/key"
)

// Where several agents route to the same backends and tell each other nothing, each
// knows a part: its own requests in flight and, from the polls, how many others there
// are; of the caches, what it sent there itself. They agree all the same if each sends
// what it has not seen before where a hash of it says.

const (
	// othersSome is from how many requests of others per own one on there are others.
	// Below are those whose end an engine has not noticed yet, and health checks.
	othersSome  = 0.25
	othersDecay = 0.98
	// homeHeld is the share of the rest of a prompt that its home is taken to hold.
	homeHeld = 0.5
	// homeFew is how many backends at most hold what only few prompts begin with.
	homeFew = 2
)

// others is a forgetful count over the polls of one backend of the requests that the
// engine has and of own ones in flight. Single polls are off either way: own ones are on
// their way, or have ended and are not noticed.
type others struct{ all, own float64 }

func (o *others) add(all, own int) {
	o.all = othersDecay*o.all + float64(max(all, 0))
	o.own = othersDecay*o.own + float64(own)
}

// join adds the counts of another backend.
func (o *others) join(p *others) { o.all, o.own = o.all+p.all, o.own+p.own }

// some says whether others send requests there. One poll that shows one is not enough.
func (o *others) some() bool { return o.all-o.own > othersSome*(o.own+1) }

// Shared says whether others send requests to the backends too, as far as polls show.
func (f *Fleet) Shared() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sum others
	for slot := range f.backends {
		if b := &f.backends[slot]; b.live && !b.gateway {
			sum.join(&b.others)
		}
	}
	return sum.some()
}

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
