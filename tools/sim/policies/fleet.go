package policies

import (
	"fmt"
	"math"
	"time"

	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// Own is one of the agent's policies, run by the agent's own code. change, which
// may be nil, edits the settings after those of the scenario were set.
func Own(name string, policy decide.Policy, change func(*decide.Params)) Policy {
	return Policy{Name: name, New: func(s Setup) Chooser { return newFleet(s, policy, change, load.Default()) }}
}

// LLMDBlend is the weighted blend as llm-d shipped it: of the queues it knows the
// latest poll, not the worst of some seconds.
func LLMDBlend() Policy {
	return Policy{Name: "llm-d-blend", New: func(s Setup) Chooser {
		lp := load.Default()
		if s.Polls > 0 {
			lp.Window = s.Polls
		}
		return newFleet(s, decide.WeightedBlend, nil, lp)
	}}
}

// Tau is the article's limit: 20,480 tokens/s for 14 s.
const Tau = 286720

// SetTau makes the limit of sticky-until-saturated a number of tokens.
func SetTau(tokens float64) func(*decide.Params) {
	return func(p *decide.Params) {
		p.TTFTTolerance = time.Duration(math.Round(tokens / p.PeakPrefill * 1e9))
	}
}

// Holding is one of the agent's policies behind an agent that keeps requests for which
// no backend has memory, as routing.hold has it.
func Holding(p Policy) Policy {
	own := p.New
	p.Name += "-holding"
	p.New = func(s Setup) Chooser {
		f := own(s).(*fleet)
		f.holds = true
		return f
	}
	return p
}

// fleet adapts decide.Fleet.
type fleet struct {
	*decide.Fleet
	setup Setup
	holds bool
	told  map[uint64]decide.Ticket
}

func newFleet(s Setup, policy decide.Policy, change func(*decide.Params), lp load.Params) *fleet {
	p := decide.Default()
	p.Policy, p.SharedKeys = policy, true
	p.PeakPrefill = s.Rate
	SetTau(Tau)(&p)
	// What the settings say in blocks, they say in blocks of RealBlock tokens.
	scale := float64(s.BlockTokens) / traffic.RealBlock
	p.MinBlocks = max(1, int(math.Round(float64(p.MinBlocks)/scale)))
	p.EnoughBlocks = max(p.MinBlocks, int(math.Round(float64(p.EnoughBlocks)/scale)))
	p.PrefillRate /= scale
	ip := index.Default()
	ip.TiersFactor = s.Memory
	if s.Perfect { // a prefix is five keys, whatever its tokens
		ip.TiersFactor /= scale
	} else {
		lp.BytesPerToken = float64(key.BlockBytes) / float64(s.BlockTokens) // of the index's blocks; prompts come with their tokens
	}
	if s.Unexplored {
		p.Exploration = 0
	}
	if s.TTL > 0 {
		ip.TTL = s.TTL
	}
	if s.Perfect {
		p.Exploration, ip.ByArrival = 0, true
		ip.TTL, ip.PendingTTL = time.Duration(index.MaxTTLSeconds)*time.Second, time.Duration(index.MaxTTLSeconds)*time.Second
	}
	if change != nil {
		change(&p)
	}
	for _, err := range []error{p.Validate(), ip.Validate(), lp.Validate()} {
		if err != nil {
			panic(fmt.Sprintf("settings of the simulator: %v", err)) // a preset is at fault, not the user
		}
	}
	f := &fleet{Fleet: decide.NewFleet(p, ip, lp, s.Rand), setup: s, told: map[uint64]decide.Ticket{}}
	for i := range s.Backends {
		f.Add(decide.Spec{Name: fmt.Sprint(i)})
		f.Observe(i, load.Sample{}, 0)
	}
	return f
}

func (f *fleet) request(j *traffic.Job) decide.Request {
	return decide.Request{
		Model: j.Model, Keys: j.Keys, Bytes: j.Bytes, Tokens: int64(j.Prompt), Stream: j.Stream, Pinned: -1,
	}
}

// Route implements Chooser.
func (f *fleet) Route(j *traffic.Job, now Instant) int {
	slot, _ := f.route(j, f.request(j), now)
	return slot
}

// RouteOrHold implements Holder.
func (f *fleet) RouteOrHold(j *traffic.Job, now Instant) (slot int, d decide.Decision) {
	return f.route(j, f.Asked(j), now)
}

// Asked implements Holder.
func (f *fleet) Asked(j *traffic.Job) decide.Request {
	r := f.request(j)
	r.MayWait = true
	return r
}

// Holds implements Holder.
func (f *fleet) Holds() bool { return f.holds }

func (f *fleet) route(j *traffic.Job, r decide.Request, now Instant) (slot int, d decide.Decision) {
	t, d := f.Fleet.Route(r, now)
	if d.Slot < 0 {
		return -1, d
	}
	j.Ticket = t
	j.Believe = int(d.PromptTokens - d.Uncached)
	if f.setup.Perfect { // the toy's caches take a prefix in when it is sent, and know no later use
		t.Confirm(now)
	}
	return d.Slot, d
}

// FirstToken implements Chooser.
func (f *fleet) FirstToken(j *traffic.Job, now Instant) {
	j.Ticket.FirstToken(now)
	if !f.setup.Perfect {
		j.Ticket.Confirm(now)
		f.Status(j.Slot, 200, now) // the head: the backend serves
	}
}

// Done implements Chooser.
func (f *fleet) Done(j *traffic.Job, now Instant) {
	if !j.Stream && !f.setup.Perfect {
		j.Ticket.Confirm(now)
		f.Status(j.Slot, 200, now)
	}
	j.Ticket.Usage(0, j.Cached, j.Output) // bytes per token hold for real blocks only, so none are taught
	j.Ticket.Done(now)
}

// Failed implements Chooser: the connection died.
func (f *fleet) Failed(j *traffic.Job, now Instant) {
	f.ConnectFailed(j.Slot, now)
	j.Ticket.Withdraw(now)
	j.Ticket.Done(now)
}

// Observe implements Chooser. The capacity is that of the setup: the toy reports
// none.
func (f *fleet) Observe(slot int, s load.Sample, now Instant) {
	s.CapacityTok = f.setup.Capacity[slot]
	f.Fleet.Observe(slot, s, now)
}

// Note implements Peer.
func (f *fleet) Note(j *traffic.Job) Note {
	return Note{Slot: j.Slot, Bytes: j.Bytes, Prompt: j.Prompt, Stream: j.Stream}
}

// Told implements Peer: the decision of another agent is booked as if this one
// had been bound to make it.
func (f *fleet) Told(n *Note, now Instant) {
	t, d := f.Fleet.Route(decide.Request{
		Keys: n.Keys, Bytes: n.Bytes, Tokens: int64(n.Prompt), Stream: n.Stream, Pinned: n.Slot, Told: true,
	}, now)
	if d.Slot >= 0 {
		f.told[n.ID] = t
	}
}

// ToldFirst implements Peer.
func (f *fleet) ToldFirst(n *Note, now Instant) {
	t := f.told[n.ID]
	t.FirstToken(now)
	t.Confirm(now)
}

// ToldDone implements Peer.
func (f *fleet) ToldDone(n *Note, now Instant) {
	t := f.told[n.ID]
	t.Confirm(now)
	t.Done(now)
	delete(f.told, n.ID)
}

// ToldFailed implements Peer.
func (f *fleet) ToldFailed(n *Note, now Instant) {
	t := f.told[n.ID]
	t.Withdraw(now)
	t.Done(now)
	delete(f.told, n.ID)
}

// Outcomes returns the decisions by outcome, those that came up.
func (f *fleet) Outcomes() map[string]int {
	out := map[string]int{}
	counts := f.Counts()
	for _, row := range counts.Decisions {
		for o, n := range row {
			if n > 0 {
				out[decide.Outcome(o).String()] += int(n)
			}
		}
	}
	return out
}
