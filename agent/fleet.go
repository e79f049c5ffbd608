package agent

import (
	"time"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/load"
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

// Room is that of decide.Fleet. Ask is left as it is: whoever holds requests asks for
// the room first.
func (f fleet) Room(model string, now decide.Instant) (tokens int64, takes int) {
	f.splicer.CatchUp()
	return f.Fleet.Room(model, now)
}

// Snapshot is that of decide.Fleet.
func (f fleet) Snapshot(now decide.Instant, dst []decide.BackendState) []decide.BackendState {
	f.splicer.CatchUp()
	return f.Fleet.Snapshot(now, dst)
}

// polls is where polls go. Each may be what requests wait for that are held.
type polls struct {
	fleet
	wake func()
}

// Observe is that of decide.Fleet.
func (p polls) Observe(slot int, s load.Sample, now time.Duration) {
	p.fleet.Observe(slot, s, now)
	p.wake()
}

// Unreachable is that of decide.Fleet.
func (p polls) Unreachable(slot int, now time.Duration) {
	p.fleet.Unreachable(slot, now)
	p.wake()
}
