package sim

import (
	"slices"
	"time"

	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/decide"
)

// heldLimit is how long a job waits at its agent at most. It is asked about again when
// an answer begins or ends and when a poll comes in, as decide.Line has it.
const heldLimit = time.Minute

type (
	line   = decide.Line[*traffic.Job]
	waiter = decide.Waiter[*traffic.Job]
)

// route asks the agent. A job that is held is in the agent's line.
func (r *run) route(agent policies.Chooser, j *traffic.Job, now Instant) (slot int, held bool) {
	h, ok := agent.(policies.Holder)
	if !ok || !h.Holds() || now-j.Arrive >= heldLimit {
		return agent.Route(j, now), false
	}
	slot, d := h.RouteOrHold(j, now)
	if held = d.Reason == decide.ReasonNoRoom; held {
		asked := h.Asked(j)
		asked.Keys = slices.Clone(asked.Keys)
		r.held[j.Agent].Add(&waiter{For: j, Request: asked, Came: j.Arrive}, d)
	}
	return slot, held
}

// holding is how many jobs wait at agents.
func (r *run) holding() (n int) {
	for a := range r.held {
		n += r.held[a].Len()
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
		if l := &r.held[a]; l.Len() > 0 {
			for _, w := range l.Ready(r.agents[a].(policies.Holder), now) {
				r.send(w.For, now) // or it waits on, if those before it took the room
			}
		}
	}
	r.waking = false
}
