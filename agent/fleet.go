package agent

import (
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/splice"
)

// fleet is a decide.Fleet whose accounts know of the first tokens that the kernel
// has passed: they are asked for where somebody looks, instead of waking the agent.
type fleet struct {
	*decide.Fleet
	splicer *splice.Splicer
}

// Route is that of decide.Fleet.
func (f fleet) Route(r decide.Request, now decide.Instant) (decide.Ticket, decide.Decision) {
	f.splicer.CatchUp()
	return f.Fleet.Route(r, now)
}

// Explain is that of decide.Fleet.
func (f fleet) Explain(r decide.Request, now decide.Instant) (decide.Decision, []decide.Candidate) {
	f.splicer.CatchUp()
	return f.Fleet.Explain(r, now)
}

// Snapshot is that of decide.Fleet.
func (f fleet) Snapshot(now decide.Instant, dst []decide.BackendState) []decide.BackendState {
	f.splicer.CatchUp()
	return f.Fleet.Snapshot(now, dst)
}
