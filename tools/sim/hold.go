package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/tools/sim/traffic"
)

// What waits at the agent is asked about again when an answer begins or ends and
// when a poll comes in. What has least to prefill goes first, in steps of an engine's
// batch; among equals who came first. So a conversation whose context is cached goes on
// before one that would drive it out. Who has waited for heldLimit is sent whatever
// room there is.
const (
	heldLimit = time.Minute
	heldStep  = 8192
)

// heldJob is a job that waits at its agent.
type heldJob struct {
	job      *traffic.Job
	needs    int64 // tokens of memory, when it was asked about last
	uncached int64 // prompt tokens to prefill, now
	due      bool  // it has waited long enough
}

// route asks the agent. A job that is held is in r.held.
func (r *run) route(agent policies.Chooser, j *traffic.Job, now Instant) (slot int, held bool) {
	h, ok := agent.(policies.Holder)
	if !ok || !h.Holds() || now-j.Arrive >= heldLimit {
		return agent.Route(j, now), false
	}
	slot, held, needs := h.RouteOrHold(j, now)
	if held {
		r.held[j.Agent] = append(r.held[j.Agent], heldJob{job: j, needs: needs})
	}
	return slot, held
}

// holding is how many jobs wait at agents.
func (r *run) holding() (n int) {
	for _, held := range r.held {
		n += len(held)
	}
	return n
}

// wake sends what can be sent by now.
func (r *run) wake(now Instant) {
	if r.waking { // what is sent may end another at once
		return
	}
	r.waking = true
	for a := range r.held {
		if len(r.held[a]) > 0 {
			r.wakeAt(a, now)
		}
	}
	r.waking = false
}

func (r *run) wakeAt(a int, now Instant) {
	agent := r.agents[a].(policies.Holder)
	room := agent.Room(now)
	var can []heldJob
	keep := r.held[a][:0]
	for _, h := range r.held[a] {
		h.due = now-h.job.Arrive >= heldLimit
		ok := h.due
		if !ok && h.needs <= room {
			h.uncached, ok = agent.Ask(h.job, now)
		}
		if ok {
			can = append(can, h)
		} else {
			keep = append(keep, h)
		}
	}
	clear(r.held[a][len(keep):])
	r.held[a] = keep
	slices.SortStableFunc(can, func(x, y heldJob) int {
		switch {
		case x.due && y.due:
			return 0
		case x.due:
			return -1
		case y.due:
			return 1
		}
		return cmp.Or(cmp.Compare(x.uncached/heldStep, y.uncached/heldStep), cmp.Compare(x.job.Arrive, y.job.Arrive))
	})
	for _, h := range can {
		r.send(h.job, now) // or it waits on, if those before it took the room
	}
}
