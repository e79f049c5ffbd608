// Package poll asks engines how busy they are: it scrapes the few series of
// their metrics pages that routing needs, learns which models they serve, and
// tells a Sink.
//
// Every backend has a goroutine, an interval and a connection of its own, so
// that one that hangs delays nobody else. Whatever a backend answers - nothing,
// garbage, too much, too slowly - costs at most the timeout and a fixed buffer,
// and is counted under a Reason.
package poll

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

// The engines whose metrics are understood.
const (
	VLLM   = "vllm"
	SGLang = "sglang"
)

// Params shape a Poller. Start from Default.
type Params struct {
	Interval time.Duration // between two polls of a backend; each wait varies by about a tenth
	Timeout  time.Duration // of one request, its body included
	Refresh  time.Duration // between two looks at what changes rarely: the models served, the way to ask

	MaxBody int64       // bytes of an answer that are read before it counts as garbage
	TLS     *tls.Config // for https backends; nil = the system's roots. Not changed, not to be changed
}

// Default is a poll each second.
func Default() Params {
	return Params{
		Interval: time.Second,
		Timeout:  500 * time.Millisecond,
		Refresh:  time.Minute,
		MaxBody:  16 << 20,
	}
}

// Validate reports every field that makes no sense.
func (p Params) Validate() error {
	var errs []error
	if p.Interval < time.Millisecond {
		errs = append(errs, fmt.Errorf("interval %v: want at least 1ms", p.Interval))
	}
	if p.Timeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("timeout %v: want at least 1ms", p.Timeout))
	}
	if p.Refresh < p.Interval {
		errs = append(errs, fmt.Errorf("refresh %v: want at least the interval, %v", p.Refresh, p.Interval))
	}
	if p.MaxBody < 1 {
		errs = append(errs, fmt.Errorf("max body %d bytes: want at least 1", p.MaxBody))
	}
	return errors.Join(errs...)
}
