package bench

import (
	"sync/atomic"
	"time"

	"github.com/tautline/tautline/tools/bench/load"
)

// loop keeps the books of a closed loop. load.Closed calls done one at a time.
type loop struct {
	open   atomic.Bool
	totals []time.Duration // of the requests that ended in the window
	failed int
	first  string
}

func (l *loop) done(r load.Result) {
	if !r.OK() {
		l.failed++
		if l.first == "" && r.Err != nil {
			l.first = r.Err.Error()
		}
		time.Sleep(time.Millisecond) // a router that refuses is no reason to spin
		return
	}
	if l.open.Load() {
		l.totals = append(l.totals, r.Total)
	}
}
