package agent

import (
	"context"
	"time"

	"github.com/tautline/tautline/userspace/decide"
)

// watchEvery is how old the routing table in the kernel may be, and how late the log
// is about backends.
const watchEvery = time.Second

// watch keeps the kernel's copy of the routing table, which bpftool and
// `tautline maps` print, and logs which backends take requests, until ctx ends.
func (a *Agent) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	set := a.kernel.maps()
	var states []decide.BackendState
	var out map[uint32]bool
	failing := false
	for {
		if set == nil {
			states = a.fleet.Snapshot(a.now(), states)
		} else {
			var err error
			states, err = a.putTable(set, states)
			if err != nil && !failing {
				a.log.Warn("routing table in the kernel is stale", "err", err)
			}
			failing = err != nil
		}
		out = a.logAdmission(states, out)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// logAdmission logs what has changed since was: the numbers of the backends that took
// no requests then. It returns them as of now. One on trial is not back yet.
func (a *Agent) logAdmission(states []decide.BackendState, was map[uint32]bool) map[uint32]bool {
	var out map[uint32]bool // nil while all is well
	for i := range states {
		b := &states[i]
		s, ok := a.shown(b.Slot)
		if !ok {
			continue
		}
		switch before, now := was[s.number], !b.Admitted || b.Trial && was[s.number]; {
		case now:
			if out == nil {
				out = map[uint32]bool{}
			}
			out[s.number] = true
			if !before {
				a.log.Warn("backend takes no requests", "backend", s.label, "reason", b.Refusal.String(), "poll_error", a.pollError(b.Slot))
			}
		case before:
			a.log.Info("backend takes requests again", "backend", s.label)
		}
	}
	return out
}

// pollError is what the latest poll of a slot failed with; empty if it worked.
func (a *Agent) pollError(slot int) string {
	for _, p := range a.pollStatus() {
		if p.Slot == slot && p.Failing > 0 {
			return p.Last
		}
	}
	return ""
}
