package proxy

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Params are the settings of a Proxy. The zero value is not usable: start from
// Default. Every field may be changed while running, through SetParams; it then
// counts for requests that begin later.
type Params struct {
	Site         string   // this agent's; in Via fields as it was when the Proxy was made
	MaxBodyBytes int64    // a longer request body is refused with 413
	BodyMemory   int64    // bytes of buffers for request bodies; beyond it 503
	AllowedPaths []string // exact escaped paths; empty = every path
	Timeouts     Timeouts
	// Retry503 is how many more backends a request for a prompt is offered to when
	// one answers 503; 0 = that answer is passed on.
	Retry503 int
	// Hold is how long a prompt is held here at most, unsent, while no backend has KV
	// memory for it, where the Router's policy knows of such; 0 = not at all. A change
	// counts for those that are held now. See decide.Line for who goes when.
	Hold time.Duration
	// HoldMost is how many are held at once; beyond it they are sent.
	HoldMost int
	// DebugHeaders adds x-tautline-backend, x-tautline-outcome and, of what was held,
	// x-tautline-held to answers.
	DebugHeaders bool
}

// Timeouts bound the waits of a request. 0 means no limit, except for those that
// guard against clients which send slowly: these must be positive.
type Timeouts struct {
	Connect      time.Duration // a backend's TCP handshake, less what the agent itself is late; TLS has 10 s more
	ResponseHead time.Duration // request written to the head of the answer: 504
	Idle         time.Duration // between two reads of an answer, or one write to a client that does not read
	Header       time.Duration // a client's request head; fixed when the Proxy is made
	Body         time.Duration // between two reads of a client's request body: 408
	KeepAlive    time.Duration // an idle client connection; fixed when the Proxy is made
}

// bodyRate is the slowest request body that is let through over a longer time,
// in bytes a second. Slower than that is an attack or a dead link.
const bodyRate = 1024

// maxRetry503 bounds what an overloaded fleet makes of one request.
const maxRetry503 = 8

// Default returns the documented defaults.
func Default() Params {
	return Params{
		Site:         "local",
		MaxBodyBytes: 64 << 20,
		BodyMemory:   1 << 30,
		Retry503:     1,
		HoldMost:     1024,
		Timeouts: Timeouts{
			Connect:   2 * time.Second,
			Header:    10 * time.Second,
			Body:      30 * time.Second,
			KeepAlive: 75 * time.Second,
		},
	}
}

// Validate reports every setting that cannot work, by its name in the configuration,
// joined into one error.
func (p Params) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case p.MaxBodyBytes <= 0 || p.MaxBodyBytes > 1<<maxBufferBits:
		bad("max_body_bytes must be in [1, %d], got %d", int64(1)<<maxBufferBits, p.MaxBodyBytes)
	case p.BodyMemory < room(p.MaxBodyBytes):
		bad("body_memory_bytes must be at least %d, which a body of max_body_bytes (%d) takes while it is read, got %d",
			room(p.MaxBodyBytes), p.MaxBodyBytes, p.BodyMemory)
	}
	if p.Retry503 < 0 || p.Retry503 > maxRetry503 {
		bad("routing.retry_503 must be in [0, %d], got %d", maxRetry503, p.Retry503)
	}
	if p.Hold < 0 {
		bad("routing.hold must not be negative, got %s", p.Hold)
	}
	if p.HoldMost < 1 {
		bad("held requests: must be at least 1, got %d", p.HoldMost)
	}
	for _, path := range p.AllowedPaths {
		u, err := url.Parse(path)
		switch {
		case !strings.HasPrefix(path, "/"):
			bad("allowed_paths: %q does not begin with a slash", path)
		case err != nil || u.EscapedPath() != path:
			bad("allowed_paths: %q is the path of no request: give it as it is sent, escaped, without a query", path)
		}
	}
	t := p.Timeouts
	for _, d := range []struct {
		name     string
		value    time.Duration
		positive bool
	}{
		{"connect", t.Connect, false},
		{"response_head", t.ResponseHead, false},
		{"idle", t.Idle, false},
		{"request_head", t.Header, true},
		{"request_body", t.Body, true},
		{"keep_alive", t.KeepAlive, true},
	} {
		switch {
		case d.value < 0:
			bad("timeouts.%s: %s is negative", d.name, d.value)
		case d.positive && d.value == 0:
			bad("timeouts.%s: must not be 0", d.name)
		}
	}
	return errors.Join(errs...)
}

// allows tells whether a request for this escaped path may go on. The compare is
// exact, so that no other spelling of a path gets around it.
func (p *Params) allows(escaped string) bool {
	if len(p.AllowedPaths) == 0 {
		return true
	}
	for _, path := range p.AllowedPaths {
		if path == escaped {
			return true
		}
	}
	return false
}
