package agent

import (
	"time"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/agent/telemetry"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/poll"
)

// label names a backend in metrics: its name, with the site before it when it
// is another site's gateway.
func (a *Agent) label(s decide.Spec) string {
	if s.Site == a.site {
		return s.Name
	}
	return s.Site + "/" + s.Name
}

// shown is how a backend appears; false when it has just been removed.
func (a *Agent) shown(slot int) (shown, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.slots[slot]
	return s, ok
}

// pollStatus is the poller's state, by label.
func (a *Agent) pollStatus() []poll.Status { return a.poller.Status(nil) }

// Status implements telemetry.Source.
func (a *Agent) Status() telemetry.Status {
	cfg := a.config()
	s := telemetry.Status{
		Version:       a.opts.Version,
		UptimeSeconds: time.Since(a.start).Seconds(),
		Site:          cfg.Site,
		Listen:        a.Addr(),
		Policy:        cfg.Routing.Policy,
		TauTokens:     a.fleet.Tau(),
		Shared:        a.fleet.Shared(),
		SharedKeys:    a.fleet.Params().SharedKeys,
		Unlike:        a.fleet.Unlike(),
		Hold:          a.hold(cfg),
		Draining:      a.draining.Load(),
		ActiveStreams: a.proxy.Active(),
		TagKey:        a.keyed(),
		PinVerdicts:   map[string]uint64{},
		Splice:        a.spliceStatus(),
		Backends:      []telemetry.BackendStatus{},
	}
	a.pins.counts(func(verdict string, n uint64) {
		if n > 0 {
			s.PinVerdicts[verdict] = n
		}
	})
	polls := map[int]poll.Status{}
	for _, p := range a.pollStatus() {
		polls[p.Slot] = p
	}
	set := a.kernel.maps()
	for _, b := range a.fleet.Snapshot(a.now(), nil) {
		as, ok := a.shown(b.Slot)
		if !ok {
			continue
		}
		row := telemetry.BackendStatus{
			Site: b.Spec.Site, Name: b.Spec.Name, URL: as.url, Models: b.Spec.Models,
			Admitted: b.Admitted, Measured: b.Measured, Queue: b.Queue, Waiting: b.Waiting, Running: b.Running,
			KVUse: b.KVUse, Inflight: b.InFlight, UncachedTokens: b.Uncached,
			IndexEntries: b.IndexEntries, IndexCapacity: b.IndexCapacity, SizeFactor: b.SizeFactor,
			MatchedTokens: b.MatchedTokens, PromptTokens: b.PromptTokens,
			CachedTokens: b.CachedTokens, UsageTokens: b.UsageTokens,
			Picks:      map[string]uint64{},
			TTFT:       a.recorder.TTFT(a.label(b.Spec)),
			Engine:     polls[b.Slot].Engine,
			PollErrors: polls[b.Slot].Failures,
		}
		if p := polls[b.Slot]; p.Last != "" {
			row.LastPollError = &telemetry.PollError{Error: p.Last, At: p.LastAt}
			if p.Failing > 0 {
				row.PollError = p.Last
			}
		}
		switch {
		case !b.Admitted:
			row.Why = b.Refusal.String()
		case b.Trial:
			row.Why = "on trial"
		}
		for o, n := range b.Picks {
			if n > 0 {
				row.Picks[decide.Outcome(o).String()] = n
			}
		}
		if set != nil {
			if l, ok, err := set.Latency(as.number); err == nil && ok {
				row.SplicedBytes, row.SplicedChunks, row.ChunkGap = l.Bytes, l.Chunks, telemetry.GapQuantiles(&l)
				s.Splice.Bytes += l.Bytes
				s.Splice.Chunks += l.Chunks
			}
		}
		s.Backends = append(s.Backends, row)
	}
	return s
}

// hold is what status says of what is held.
func (a *Agent) hold(cfg *config.Config) *telemetry.Hold {
	held := a.proxy.Held()
	if held == 0 && cfg.Routing.Hold == 0 {
		return nil
	}
	return &telemetry.Hold{LimitSeconds: cfg.Routing.Hold.Seconds(), Held: held, Waited: a.recorder.HeldFor()}
}

// Ready implements telemetry.Source.
func (a *Agent) Ready() (ok bool, reason string) {
	if a.draining.Load() {
		return false, "draining"
	}
	for _, b := range a.fleet.Snapshot(a.now(), nil) {
		if b.Admitted {
			return true, ""
		}
	}
	return false, "no backend is admitted"
}

// keyed says whether stored ids are signed.
func (a *Agent) keyed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tagger.Keyed()
}
