package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tautline/tautline/tools/quantile"
	"github.com/tautline/tautline/tools/sim/engine"
	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/key"
)

// run is one simulation on its way.
type run struct {
	sc       *Scenario
	source   traffic.Source
	engines  []engine.Model
	up       []bool
	next     []Instant // next change of each engine
	agents   []policies.Chooser
	peers    []policies.Peer // agents that share, when Telling
	polls    []Instant
	outages  []Outage // by time; each is seen twice
	tells    []tell   // in the order of their time: the delay is the same for all
	told     int
	spare    []*traffic.Job
	held     []line // by agent
	waking   bool
	alive    int
	made     int
	slab     []traffic.Job // the latest jobs made
	keys     []key.Key     // of the job that is routed; used again for the next
	rnd      *rand.Rand
	ttfts    []time.Duration
	perSlot  []int
	series   Instant
	notes    map[*traffic.Job]*policies.Note
	noted    uint64 // notes written: several may go out between two arrivals
	res      Result
	prompt   int64
	cached   int64
	believed int64
	hits     int
	began    int // counted jobs that had their first token
	inWindow int
	tpot     float64
	tpots    int
}

// slabSize is how many jobs are made at once: as many as fill a size of the runtime's
// allocator, 16 KiB, of which a few less would leave a tenth empty.
const slabSize = 70

type tell struct {
	at   Instant
	kind uint8
	from int
	note *policies.Note
}

const (
	tellBooked uint8 = iota
	tellFirst
	tellDone
	tellFailed
)

// Run simulates one scenario under one policy. The same arguments give the
// same result. A cancelled context ends it early: the error is the context's
// and the result is not to be used.
func Run(ctx context.Context, sc Scenario, policy policies.Policy, seed uint64) (Result, error) {
	if err := suits(&sc, policy); err != nil {
		return Result{}, err
	}
	r := newRun(&sc, policy, seed)
	if err := r.loop(ctx); err != nil {
		return Result{}, err
	}
	r.stop()
	return r.result(), nil
}

// suits says what keeps the policy from the scenario.
func suits(sc *Scenario, policy policies.Policy) error {
	if policy.Toy && !sc.Perfect {
		return fmt.Errorf("policy %s knows the seed's toy only, not %s", policy.Name, sc.Name)
	}
	return nil
}

func newRun(sc *Scenario, policy policies.Policy, seed uint64) *run {
	n := len(sc.Backends)
	r := &run{
		sc:      sc,
		source:  sc.Traffic(seed),
		up:      make([]bool, n),
		next:    make([]Instant, n),
		perSlot: make([]int, n),
		rnd:     rand.New(rand.NewPCG(seed, 0x666c656574)),
		res:     Result{Scenario: sc.Name, Load: sc.Load, Policy: policy.Name, Seed: seed},
	}
	for i, b := range sc.Backends {
		r.engines = append(r.engines, b.start())
		r.up[i], r.next[i] = true, traffic.Never
		if sc.Polls > 0 {
			r.polls = append(r.polls, Instant(r.rnd.Int64N(int64(sc.Polls))))
		}
	}
	for a := range max(1, sc.Agents) {
		c := policy.New(sc.setup(rand.New(rand.NewPCG(seed, uint64(a)+0x6167656e74))))
		r.agents = append(r.agents, c)
		r.held = append(r.held, line{Limit: heldLimit})
		if p, ok := c.(policies.Peer); ok && sc.Telling > 0 && sc.Agents > 1 {
			r.peers = append(r.peers, p)
			r.notes = map[*traffic.Job]*policies.Note{}
		}
	}
	for _, o := range sc.Outages {
		r.outages = append(r.outages, o, Outage{Slot: o.Slot, From: o.To, To: o.From})
	}
	slices.SortStableFunc(r.outages, func(a, b Outage) int { return int(min(1, max(-1, a.From-b.From))) })
	if sc.Series > 0 {
		r.res.Every = sc.Series.Seconds()
	}
	return r
}

// loop takes the earliest event until there is none. With ten backends a scan
// over their times is faster than a heap.
func (r *run) loop(ctx context.Context) error {
	limit := traffic.Never
	if r.sc.Drain > 0 {
		limit = r.sc.Until + r.sc.Drain
	}
	for steps := 0; ; steps++ {
		if steps&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		slot, now := -1, r.source.Next()
		for i, t := range r.next {
			if t < now {
				slot, now = i, t
			}
		}
		side := r.side()
		if now > limit || now == traffic.Never && len(r.outages) == 0 && (r.holding() == 0 || side == traffic.Never) {
			return nil // a job that no engine can ever admit is counted as unfinished
		}
		switch {
		case side <= now && side != traffic.Never:
			if side > limit {
				return nil
			}
			r.doSide(side)
		case now == traffic.Never:
			return nil
		case slot >= 0:
			r.engines[slot].Step(now, (*events)(r))
			r.next[slot] = r.engines[slot].Next()
		default:
			r.arrive(now)
		}
	}
}

// stop counts those that wait for their first token to the end, with the time
// that they have waited: left out, they would make a fleet look the better the
// more it leaves undone.
func (r *run) stop() {
	end := r.sc.Until + r.sc.Drain
	for _, e := range r.engines {
		for _, j := range e.Kill() {
			r.waited(j, end)
		}
	}
	for a := range r.held {
		for w := range r.held[a].All() {
			r.waited(w.For, end)
		}
	}
}

func (r *run) waited(j *traffic.Job, end Instant) {
	if r.counts(j) && !j.Seen {
		r.ttfts = append(r.ttfts, end-j.Arrive)
	}
}

// side returns the time of the next event that is neither traffic nor engine.
func (r *run) side() Instant {
	t := traffic.Never
	for _, p := range r.polls {
		t = min(t, p)
	}
	if r.told < len(r.tells) {
		t = min(t, r.tells[r.told].at)
	}
	if len(r.outages) > 0 {
		t = min(t, r.outages[0].From)
	}
	if r.sc.Series > 0 && r.series <= r.sc.Until {
		t = min(t, r.series)
	}
	return t
}

func (r *run) doSide(now Instant) {
	if r.told < len(r.tells) && r.tells[r.told].at == now {
		r.tell(now)
		return
	}
	if len(r.outages) > 0 && r.outages[0].From == now {
		o := r.outages[0]
		r.outages = r.outages[1:]
		r.outage(o, now)
		return
	}
	if r.sc.Series > 0 && r.series == now {
		row := make([]float32, len(r.engines))
		for i, e := range r.engines {
			s := e.Sample()
			row[i] = float32(s.Waiting + s.Running)
		}
		r.res.Loads = append(r.res.Loads, row)
		r.series += r.sc.Series
		return
	}
	for i, p := range r.polls {
		if p != now {
			continue
		}
		if r.up[i] {
			s := r.engines[i].Sample()
			for _, a := range r.agents {
				a.Observe(i, s, now)
			}
		}
		r.polls[i] += r.sc.Polls
	}
	r.wake(now)
}

func (r *run) arrive(now Instant) {
	j := r.job()
	r.source.Pop(j)
	j.Arrive = now
	j.Stream = !r.sc.Unstreamed
	if len(r.agents) > 1 {
		j.Agent = r.rnd.IntN(len(r.agents))
	}
	r.alive++
	r.res.Jobs++
	if r.counts(j) {
		r.res.Arrived++
	}
	if r.fits(j) {
		r.send(j, now)
	} else {
		r.refuse(j, now)
	}
}

// fits says whether any engine could ever run the job; one that could not would
// refuse it, as real ones refuse what is longer than their longest context.
func (r *run) fits(j *traffic.Job) bool {
	for i := range r.sc.Backends {
		if b := r.sc.Backends[i].Batching; b == nil || b.Fits(j) {
			return true
		}
	}
	return false
}

// refuse ends a job that nobody takes.
func (r *run) refuse(j *traffic.Job, now Instant) {
	if r.counts(j) {
		r.res.Refused++
	}
	r.source.Done(j, now)
	r.free(j)
}

// send routes the job until a backend that is up has it. A backend that is
// down refuses the connection, so the router knows at once.
func (r *run) send(j *traffic.Job, now Instant) {
	agent := r.agents[j.Agent]
	j.Keys = r.keys
	j.SetKeys(r.sc.BlockTokens)
	r.keys = j.Keys
	for range len(r.engines) + 1 {
		j.Believe, j.First = 0, traffic.Never
		var held bool
		if j.Slot, held = r.route(agent, j, now); held {
			return
		}
		if j.Slot < 0 {
			break
		}
		if r.up[j.Slot] {
			r.engines[j.Slot].Submit(j, now)
			r.next[j.Slot] = r.engines[j.Slot].Next()
			r.say(tellBooked, j, now)
			return
		}
		agent.Failed(j, now)
	}
	r.refuse(j, now)
}

// say queues a note for the other agents.
func (r *run) say(kind uint8, j *traffic.Job, now Instant) {
	if len(r.peers) == 0 {
		return
	}
	if kind == tellBooked {
		n := r.peers[j.Agent].Note(j)
		r.noted++
		n.ID = r.noted
		n.Keys = slices.Clone(j.Keys)
		r.notes[j] = &n
	}
	r.tells = append(r.tells, tell{now + r.sc.Telling, kind, j.Agent, r.notes[j]})
	if kind == tellDone || kind == tellFailed {
		delete(r.notes, j)
	}
}

func (r *run) tell(now Instant) {
	t := r.tells[r.told]
	r.tells[r.told] = tell{}
	if r.told++; r.told > 4096 {
		r.tells = r.tells[:copy(r.tells, r.tells[r.told:])]
		r.told = 0
	}
	for a, p := range r.peers {
		if a == t.from {
			continue
		}
		switch t.kind {
		case tellBooked:
			p.Told(t.note, now)
		case tellFirst:
			p.ToldFirst(t.note, now)
		case tellDone:
			p.ToldDone(t.note, now)
		case tellFailed:
			p.ToldFailed(t.note, now)
		}
	}
}

func (r *run) outage(o Outage, now Instant) {
	r.up[o.Slot] = o.From > o.To
	if r.up[o.Slot] {
		return
	}
	dead := r.engines[o.Slot].Kill()
	r.next[o.Slot] = r.engines[o.Slot].Next()
	for _, j := range dead {
		r.agents[j.Agent].Failed(j, now)
		r.say(tellFailed, j, now)
		if r.counts(j) {
			r.res.Retried++
		}
		r.send(j, now)
	}
}

func (r *run) counts(j *traffic.Job) bool { return j.Arrive >= r.sc.Warmup }

func (r *run) job() *traffic.Job {
	if n := len(r.spare); n > 0 {
		j := r.spare[n-1]
		r.spare = r.spare[:n-1]
		j.Reset()
		return j
	}
	at := r.made % slabSize
	if at == 0 { // a backlog is all new jobs: made one by one they cost more than to route
		r.slab = make([]traffic.Job, slabSize)
		segs := make([]traffic.Segment, 2*slabSize)
		for i := range r.slab { // enough for most; those that need more grow
			r.slab[i].Segs = segs[2*i : 2*i : 2*i+2]
		}
	}
	j := &r.slab[at]
	j.Index = r.made
	r.made++
	j.Reset()
	return j
}

func (r *run) free(j *traffic.Job) {
	r.alive--
	r.spare = append(r.spare, j)
}

// events hears the engines.
type events run

// FirstToken implements engine.Events.
func (e *events) FirstToken(j *traffic.Job, now Instant) {
	r := (*run)(e)
	j.First = now
	if j.Stream {
		r.agents[j.Agent].FirstToken(j, now)
		r.say(tellFirst, j, now)
		defer r.wake(now)
	}
	if r.counts(j) && !j.Seen {
		j.Seen = true
		r.ttfts = append(r.ttfts, now-j.Arrive)
		r.prompt += int64(j.Prompt)
		r.cached += int64(j.Cached)
		r.believed += int64(j.Believe)
		r.perSlot[j.Slot]++
		r.began++
		if j.Cached > 0 {
			r.hits++
		}
	}
}

// Done implements engine.Events.
func (e *events) Done(j *traffic.Job, now Instant) {
	r := (*run)(e)
	r.agents[j.Agent].Done(j, now)
	r.say(tellDone, j, now)
	if r.counts(j) {
		r.res.Completed++
		r.res.Preempted += int(j.Preempted)
		if j.Output > 1 {
			r.tpot += (now - j.First).Seconds() / float64(j.Output-1)
			r.tpots++
		}
	}
	if now >= r.sc.Warmup && now < r.sc.Until {
		r.inWindow++
	}
	r.source.Done(j, now)
	r.free(j)
	r.wake(now)
}

func (r *run) result() Result {
	res := &r.res
	res.Unfinished = res.Arrived - res.Completed - res.Refused
	slices.Sort(r.ttfts)
	at := func(q float64) float64 { return quantile.Of(r.ttfts, q).Seconds() }
	res.P50, res.P90, res.P99 = at(.5), at(.9), at(.99)
	sum := 0.0
	for _, t := range r.ttfts {
		sum += t.Seconds()
	}
	if n := float64(len(r.ttfts)); n > 0 {
		res.Mean = sum / n
	}
	if n := float64(r.began); n > 0 {
		res.HitTokens = float64(r.cached) / float64(r.prompt)
		res.HitJobs = float64(r.hits) / n
		res.Spread = float64(slices.Max(r.perSlot)) * float64(len(r.perSlot)) / n
	}
	if r.cached > 0 {
		res.Believed = float64(r.believed) / float64(r.cached)
	}
	if r.tpots > 0 {
		res.TPOT = r.tpot / float64(r.tpots)
	}
	res.Throughput = float64(r.inWindow) / (r.sc.Until - r.sc.Warmup).Seconds()
	if o, ok := r.agents[0].(interface{ Outcomes() map[string]int }); ok {
		res.Outcomes = o.Outcomes()
	}
	return *res
}
