package decide

// Where several agents route to the same backends and tell each other nothing, each
// knows a part: its own requests in flight and, from the polls, how many others there
// are; of the caches, what it sent there itself. They agree all the same if each sends
// what it has not seen before where a hash of it says.

const (
	// othersSome is from how many requests of others per own one on there are others.
	// Below are those whose end an engine has not noticed yet, and health checks.
	othersSome  = 0.25
	othersDecay = 0.98
)

// others is a forgetful count over the polls of one backend of the requests that the
// engine has and of own ones in flight. Single polls are off either way: own ones are on
// their way, or have ended and are not noticed.
type others struct{ all, own, polls float64 }

func (o *others) add(all, own int) {
	o.polls = othersDecay*o.polls + 1
	o.all = othersDecay*o.all + float64(max(all, 0))
	o.own = othersDecay*o.own + float64(own)
}

// join adds the counts of another backend.
func (o *others) join(p *others) { o.all, o.own = o.all+p.all, o.own+p.own }

// some says whether others send requests there.
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

// mean is how many requests of others there are. Own ones that the engine has not taken up
// yet can make them seem less than none.
func (o *others) mean() float64 { return max(o.all-o.own, 0) / max(o.polls, 1) }

// theirs is how many requests others have there, in the mean of some polls or as told.
func (b *backend) theirs() float64 { return b.others.mean() + float64(b.told) }
