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

// others is a forgetful count of requests in flight over the polls of all backends.
type others struct{ theirs, own float64 }

func (o *others) add(theirs, own int) {
	o.theirs = othersDecay*o.theirs + float64(theirs)
	o.own = othersDecay*o.own + float64(own)
}

// some says whether others send requests to the same backends.
func (o *others) some() bool { return o.theirs > othersSome*o.own }

// Shared says whether others send requests to the same backends, as far as polls show.
func (f *Fleet) Shared() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.others.some()
}

// share adds to the question and to the candidates what a policy that spreads asks for
// where others send requests to them as well.
func (f *Fleet) share(r *Request, q *Question) {
	if !f.others.some() {
		return
	}
	for i := range f.cands {
		c, v := &f.cands[i], &f.views[i]
		c.Others, c.Served = v.Others, v.Served
	}
	keys := keysOf(r)
	if !f.params.SharedKeys || len(keys) == 0 {
		return
	}
	q.Shared = true
	deep, holders := 0, 0
	for i := range f.cands {
		switch run := f.cands[i].Run; {
		case run > deep:
			deep, holders = run, 1
		case run == deep:
			holders++
		}
	}
	first := keys[min(deep, len(keys)-1)]
	home := -1
	for i := range f.cands {
		c := &f.cands[i]
		c.Home = rendezvous(first, f.backends[c.Slot].id)
		if c.Takes() && (home < 0 || c.Home > f.cands[home].Home) {
			home = i
		}
	}
	// Who alone holds the longest run has been sent this prompt so far, by others too.
	if home >= 0 && deep < len(keys) && (deep == 0 || holders > homeFew) {
		c := &f.cands[home]
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
