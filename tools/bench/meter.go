package bench

import (
	"os"
	"time"

	"github.com/tautline/tautline/tools/bench/peers"
	"github.com/tautline/tautline/tools/bench/report"
	"github.com/tautline/tautline/tools/bench/usage"
)

// reading is what everybody has used at one moment.
type reading struct {
	at             time.Time
	router         usage.Usage
	hasRouter      bool
	server, client usage.Usage
	machine        usage.Machine
}

func (b *bench) read(p *peers.Peer) (r reading, err error) {
	if r.router, r.hasRouter, err = p.Usage(); err != nil {
		return r, err
	}
	if r.server, err = usage.Of(b.server.PID); err != nil {
		return r, err
	}
	if r.client, err = usage.Of(os.Getpid()); err != nil {
		return r, err
	}
	if r.machine, err = usage.OfMachine(); err != nil {
		return r, err
	}
	r.at = time.Now()
	return r, nil
}

// since is what was used between two readings.
func (r reading) since(o reading) used {
	return used{
		span: r.at.Sub(o.at), router: r.router.Sub(o.router), hasRouter: r.hasRouter,
		server: r.server.Sub(o.server), client: r.client.Sub(o.client), machine: r.machine.Sub(o.machine),
	}
}

type used struct {
	span           time.Duration
	router         usage.Usage
	hasRouter      bool
	server, client usage.Usage
	machine        usage.Machine
}

// per is d per one of n, in microseconds.
func per(d time.Duration, n int) report.Value {
	if n == 0 {
		return report.Value{}
	}
	return report.Of(micros(d) / float64(n))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// ofRouter is v where there is a router.
func (u used) ofRouter(v report.Value) report.Value {
	if !u.hasRouter {
		return report.Value{}
	}
	return v
}

func (u used) rss() report.Value { return u.ofRouter(report.Of(float64(u.router.RSS))) }

func (u used) busy() report.Value {
	if u.machine.Total == 0 {
		return report.Value{}
	}
	return report.Of(float64(u.machine.Busy) / float64(u.machine.Total))
}

func (u used) stolen() report.Value {
	if u.machine.Total == 0 {
		return report.Value{}
	}
	return report.Of(float64(u.machine.Stolen) / float64(u.machine.Total))
}

// perCount is count per one of n.
func perCount(count int64, n int) report.Value {
	if n == 0 {
		return report.Value{}
	}
	return report.Of(float64(count) / float64(n))
}
