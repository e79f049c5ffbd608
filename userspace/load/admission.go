package load

import "time"

// Refusal says why a backend takes no new request.
type Refusal uint8

// The refusals. Admitted is their absence.
const (
	Admitted Refusal = iota
	Draining         // taken out of service on purpose
	Ejected          // failed lately; waits for its back-off to end
	Probing          // its back-off is over and one request is finding out
	Absent           // there is no such backend

	NumRefusals = int(Absent) + 1
)

// String returns the label value.
func (r Refusal) String() string {
	return [...]string{"admitted", "draining", "ejected", "probing", "absent"}[r]
}

// breaker is the admission state of one backend.
//
// closed -> (failures) -> ejected until t -> half open: one request probes ->
// closed, or ejected twice as long.
type breaker struct {
	draining bool
	open     bool   // ejected or half open
	probing  bool   // half open and the probe is out
	probe    uint32 // number of the latest probe
	connects int    // failed connects in a row
	errors   int    // 5xx in a row
	trips    int    // ejections in a row; sets the back-off
	at       time.Duration
	served   time.Duration // when it gave its latest answer under 500
	until    time.Duration
	byPoll   bool // a good poll after the ejection allows the probe early
	gone     bool // the latest poll found nobody there: no request need find out
}

func (b *breaker) refusal(now time.Duration) Refusal {
	switch {
	case b.draining:
		return Draining
	case !b.open:
		return Admitted
	case now < b.until || b.gone:
		return Ejected
	case b.probing:
		return Probing
	}
	return Admitted
}

// trip ejects, longer each time in a row. A failure that comes in while the
// backend is already ejected belongs to a request sent before: it changes nothing.
func (b *breaker) trip(p *Params, now time.Duration, byPoll bool) {
	if b.open && now < b.until {
		return
	}
	wait := p.BackoffMax
	if b.trips < 32 {
		if d := p.Backoff << b.trips; d > 0 && d < wait {
			wait = d
		}
	}
	b.trips++
	b.open, b.probing = true, false
	b.at, b.until, b.byPoll = now, now+wait, byPoll
}

// connectFailed takes a connection that failed, or a poll that was sent at now and did.
// Who has answered since is there.
func (b *breaker) connectFailed(p *Params, now time.Duration) {
	if now < b.served {
		return
	}
	b.connects++
	if b.open || b.connects >= p.EjectConnects {
		b.trip(p, now, true)
	}
}

// unreachable takes a poll, sent at now, that found nobody to connect to.
func (b *breaker) unreachable(p *Params, now time.Duration) {
	b.gone = now >= b.served
	b.connectFailed(p, now)
}

func (b *breaker) status(p *Params, code int, now time.Duration) {
	if code < 500 { // any answer under 500 proves that it serves
		*b = breaker{draining: b.draining, probe: b.probe, served: max(b.served, now)}
		return
	}
	b.connects = 0
	b.errors++
	if b.open || b.errors >= p.EjectErrors {
		b.trip(p, now, code == 503)
	}
}

// erring tells whether it is out for what it answered, though it can be reached and
// did not say that it has too much to do.
func (b *breaker) erring() bool { return b.open && !b.byPoll && !b.gone }

// polled lets the probe go early when the engine answered a poll after it was
// ejected for being unreachable or overloaded. Other 5xx are not taken back by
// a poll: an engine can fail every request and still print its metrics.
func (b *breaker) polled(at time.Duration) {
	b.gone = false
	if b.open && b.byPoll && at > b.at && at < b.until {
		b.until = at
	}
}
