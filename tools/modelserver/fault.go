package modelserver

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Request headers that ask for a failure, or for ids that repeat.
const (
	HeaderStatus        = "X-Modelserver-Status"        // answer with this status at once
	HeaderStall         = "X-Modelserver-Stall"         // wait this long before the head, or "forever"
	HeaderStallAfter    = "X-Modelserver-Stall-After"   // wait only after this many stream events
	HeaderDieAfter      = "X-Modelserver-Die-After"     // cut the connection after this many stream events; 0 = before the head
	HeaderFull          = "X-Modelserver-Full"          // any value: refuse as an engine whose queue is full
	HeaderDeterministic = "X-Modelserver-Deterministic" // any value: ids follow from the request
)

// Fault is what goes wrong with requests that generate. The zero Fault is none.
type Fault struct {
	Status     int           // answered at once; 0 = none
	Full       bool          // refused as by an engine whose queue is full, see Config.MaxQueued
	Stall      time.Duration // wait; negative = until the client leaves
	StallAfter int           // stream events before the wait; 0 = before the head
	Die        bool          // cut the connection
	DieAfter   int           // stream events before the cut; half of a body that is not streamed
}

// requested overlays what the request's headers ask for. Values that cannot
// be read are ignored.
func (f Fault) requested(h http.Header) Fault {
	if n, err := strconv.Atoi(h.Get(HeaderStatus)); err == nil && n >= 200 && n <= 599 {
		f.Status = n
	}
	f.Full = f.Full || h.Get(HeaderFull) != ""
	if v := h.Get(HeaderStall); v == "forever" {
		f.Stall = -1
	} else if d, err := time.ParseDuration(v); err == nil {
		f.Stall = d
	}
	if n, err := strconv.Atoi(h.Get(HeaderStallAfter)); err == nil {
		f.StallAfter = n
	}
	if n, err := strconv.Atoi(h.Get(HeaderDieAfter)); err == nil && n >= 0 {
		f.Die, f.DieAfter = true, n
	}
	return f
}

// wait stalls where the fault says so: after `events` events.
func (f *Fault) wait(ctx context.Context, events int) {
	if f.Stall == 0 || f.StallAfter != events {
		return
	}
	if f.Stall < 0 {
		<-ctx.Done()
		return
	}
	t := time.NewTimer(f.Stall)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// cut ends the connection without an end of the body where the fault says so.
func (f *Fault) cut(events int) {
	if f.Die && f.DieAfter == events {
		panic(http.ErrAbortHandler)
	}
}
