package decide

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// Instant is a monotonic time, counted from any fixed moment of the caller's choice.
type Instant = time.Duration

// Spec names a backend that requests can be sent to.
type Spec struct {
	Site   string
	Name   string
	Models []string // empty = learned by polling; until then it serves every model
}

// Fleet is the set of backends with all that is known about them: index, load
// and admission. It makes a choice, its reservation and its pending marks one
// atomic step, so that two requests back to back see each other. The agent and
// the simulator use the same Fleet. All methods may be called concurrently.
type Fleet struct {
	mu     sync.Mutex
	params Params
	rnd    *rand.Rand
	index  *index.Index
	ip     index.Params
	load   *load.Books

	backends []backend
	models   map[string]*model
	any      slotSet // backends whose models are not known: they serve every model
	all      slotSet
	turns    turns // of requests for no model that a backend names

	decisions [NumPolicies][NumOutcomes]uint64
	refusals  [NumReasons]uint64
	cold      uint64 // requests without a match so far
	demand    demand // of requests that departed under a policy that spreads
	reuse     time.Duration
	repeats   []repeats // by the model's number in the load books
	hears     bool      // other agents have told of what they sent
	idle      *flight
	slab      []flight // that were never used
	flights   int

	// Scratch of one choice, guarded by mu.
	slots []int
	runs  []int
	views []load.View
	cands []Candidate
	fills []index.Fill // of cands
	begun []int32
	needs int64 // of the question, under a policy that spreads
}

// backend is one slot.
type backend struct {
	live           bool
	generation     uint32
	spec           Spec
	id             uint64 // see identity
	blocks         int    // index capacity in blocks as last set
	size           size
	first          int // blocks that the engine itself says; 0 = it does not
	others         others
	told           int  // requests in flight that other agents sent and told of
	gateway        bool // of several model servers
	lastCold       uint64
	picks          [NumOutcomes]uint64
	matched        int64
	prompt         int64
	reportedPrompt int64
	reportedCached int64
}

// model is one model that at least one backend names.
type model struct {
	slots slotSet
	turns turns
	means int // number in the load books
}

// turns is the round-robin of one model.
type turns struct{ last int }

// NewFleet returns a fleet without backends. All params must be valid. rnd
// breaks ties and picks explorers; the fleet is its only user from then on.
func NewFleet(p Params, ip index.Params, lp load.Params, rnd *rand.Rand) *Fleet {
	return &Fleet{
		params: p, rnd: rnd, index: index.New(ip), ip: ip, load: load.New(lp),
		models: map[string]*model{}, turns: turns{-1}, reuse: firstReuse,
	}
}

// SetParams changes how the next choice is made. Params must be valid. A policy
// that spreads does not know the keys of requests that departed under one that
// does not: until they end it spreads less.
func (f *Fleet) SetParams(p Params) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.params = p
}

// SetIndexParams changes the memory: a smaller capacity evicts the least recent
// at once, TTLs apply to later marks and confirmations.
func (f *Fleet) SetIndexParams(p index.Params) {
	f.mu.Lock()
	defer f.mu.Unlock()
	other := p.CapacityTokens != f.ip.CapacityTokens || p.TiersFactor != f.ip.TiersFactor
	f.ip = p
	f.index.SetParams(p)
	for slot := range f.backends {
		if f.backends[slot].live {
			if other {
				f.backends[slot].size.restart()
			}
			f.setCapacity(slot, true)
		}
	}
}

// SetLoadParams changes windows and back-offs. What was learned stays.
func (f *Fleet) SetLoadParams(p load.Params) { f.load.SetParams(p) }

// Params returns the settings of the next choice.
func (f *Fleet) Params() Params {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.params
}

// Tau returns the saturation limit in uncached prompt tokens.
func (f *Fleet) Tau() int64 {
	p := f.Params()
	return p.Tau()
}

// Add takes a backend in and returns its slot: the smallest free number.
func (f *Fleet) Add(s Spec) (slot int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for slot < len(f.backends) && f.backends[slot].live {
		slot++
	}
	if slot == len(f.backends) {
		f.backends = append(f.backends, backend{})
		f.runs = append(f.runs, 0)
		f.views = append(f.views, load.View{})
	}
	b := &f.backends[slot]
	*b = backend{live: true, generation: b.generation + 1, spec: s, id: identity(&s)}
	f.index.Add(slot)
	f.load.Add(slot)
	f.all.add(slot)
	f.serve(slot, s.Models)
	f.setCapacity(slot, true)
	return slot
}

// Remove takes a backend out and frees what it used. Tickets of requests that
// are still under way there change nothing any more, whoever gets the slot next.
func (f *Fleet) Remove(slot int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.live(slot) {
		return
	}
	f.serve(slot, nil)
	f.any.remove(slot)
	f.all.remove(slot)
	f.index.Remove(slot)
	f.load.Remove(slot)
	f.backends[slot] = backend{generation: f.backends[slot].generation}
}

// SetModels sets what a backend serves, as it said itself. Empty = not known:
// it serves every model.
func (f *Fleet) SetModels(slot int, models []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live(slot) {
		f.backends[slot].spec.Models = slices.Clone(models)
		f.serve(slot, models)
	}
}

// serve enters a backend at its models, and strikes out models that nobody
// names any more.
func (f *Fleet) serve(slot int, models []string) {
	for name, m := range f.models {
		m.slots.remove(slot)
		if m.slots.empty() && !slices.Contains(models, name) {
			delete(f.models, name)
		}
	}
	f.any.remove(slot)
	if len(models) == 0 {
		f.any.add(slot)
	}
	for _, name := range models {
		m := f.models[name]
		if m == nil {
			m = &model{turns: turns{-1}, means: f.load.Model(name)}
			f.models[name] = m
		}
		m.slots.add(slot)
	}
}

func (f *Fleet) live(slot int) bool {
	return slot >= 0 && slot < len(f.backends) && f.backends[slot].live
}

// Drain stops or resumes new requests to a backend. Those under way finish.
func (f *Fleet) Drain(slot int, on bool) { f.load.Drain(slot, on) }

// Observe takes in a poll; now is when it was sent. An engine that restarted
// has lost its cache, so its memory is forgotten; the index takes the size that
// the engine reports.
func (f *Fleet) Observe(slot int, s load.Sample, now Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.live(slot) {
		return
	}
	if f.load.Observe(slot, s, now) {
		f.index.Forget(slot)
		f.backends[slot].size.restart() // it may have been given another cache
		f.backends[slot].others = others{}
	}
	f.backends[slot].gateway = s.Engines > 0
	if s.HasQueue {
		f.backends[slot].others.add(s.Waiting+s.Running, f.load.View(slot, now).Own)
	}
	f.setCapacity(slot, false)
}

// capacitySlack is how far, relatively, the size of a memory may be off before
// it is set anew: bytes per token are learned and wander.
const capacitySlack = 0.02

func (f *Fleet) setCapacity(slot int, always bool) {
	v := f.load.Engine(slot)
	b := &f.backends[slot]
	blocks := f.ip.Blocks(v.CapacityTok, v.BytesPerToken)
	if blocks > 0 {
		b.first = f.ip.FirstTier(v.CapacityTok, v.BytesPerToken)
		b.size.least = min(float64(b.first)/float64(blocks), 1)
		blocks = max(int(float64(blocks)*f.sizeFactor(b)), 1)
	}
	off := float64(blocks - b.blocks)
	if always || max(off, -off) > capacitySlack*float64(b.blocks) {
		b.blocks = blocks
		f.index.SetCapacity(slot, blocks)
	}
}

// sizeFactor is by what the policy corrects the size of a memory.
func (f *Fleet) sizeFactor(b *backend) float64 {
	if !policies[f.params.Policy].spreads {
		return 1
	}
	return b.size.factor()
}

// PollFailed takes in a poll without a result. It ejects nobody.
func (f *Fleet) PollFailed(slot int, now Instant) { f.load.PollFailed(slot, now) }

// ConnectFailed takes in a connection that could not be made: the backend is
// ejected for a back-off that doubles with each failed probe.
func (f *Fleet) ConnectFailed(slot int, now Instant) { f.load.ConnectFailed(slot, now) }

// Unreachable takes in a poll that found nobody to connect to: no request probes the
// backend until a poll finds somebody.
func (f *Fleet) Unreachable(slot int, now Instant) { f.load.Unreachable(slot, now) }

// Status takes in the status of an answer. 5xx in a row eject; 4xx never does.
func (f *Fleet) Status(slot, code int, now Instant) { f.load.Status(slot, code, now) }

// keysOf bounds the keys of a request to what one request may have.
func keysOf(r *Request) []key.Key {
	n := min(len(r.Keys), key.MaxKeys)
	if r.Cover != nil {
		n = min(n, len(r.Cover))
	}
	return r.Keys[:n]
}
