package poll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/tautline/tautline/userspace/load"
)

// Target is a backend to poll.
type Target struct {
	Slot     int
	Name     string
	URL      string        // base, with or without a path; no query
	Engine   string        // VLLM, SGLang, Tautline for another agent, or "" to find out
	Models   []string      // served models; empty = learn them
	Interval time.Duration // 0 = Params.Interval
}

// Sink takes what polls bring. The Poller calls it from many goroutines, for
// one slot never from two at a time. It must not call the Poller back.
type Sink interface {
	// Observe takes a poll that worked. now is when it was sent. A sample
	// without HasQueue is a backend that is well and shows no metrics.
	Observe(slot int, s load.Sample, now time.Duration)
	// PollFailed takes a poll that brought nothing.
	PollFailed(slot int, now time.Duration)
	// Unreachable takes, instead of PollFailed, a poll that found nobody to connect
	// to, and is not the first in a row that failed.
	Unreachable(slot int, now time.Duration)
	// ConnectFailed takes such a poll that found somebody who hung up, or said what is
	// no answer; PollFailed came before it.
	ConnectFailed(slot int, now time.Duration)
	// SetModels takes the served models when they changed, sorted, never empty.
	SetModels(slot int, models []string)
}

// Errors of Add.
var (
	ErrClosed = errors.New("poller is closed")
	ErrSlot   = errors.New("slot is polled already")
)

// Poller polls any number of targets. It is safe for concurrent use.
type Poller struct {
	sink  Sink
	clock func() time.Duration
	wg    sync.WaitGroup

	start   time.Time // of the grid on which targets poll together
	buffers buffers

	mu      sync.Mutex
	params  Params
	targets map[int]*target
	closed  bool
}

// New makes a Poller without targets. clock is the monotonic time that the
// Sink gets to see; it may be called from many goroutines. New fails when the
// Params are not valid.
func New(p Params, sink Sink, clock func() time.Duration) (*Poller, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("poll: %w", err)
	}
	return &Poller{sink: sink, clock: clock, params: p, start: time.Now(), targets: make(map[int]*target)}, nil
}

// SetParams takes effect with the next poll of each target; TLS with the next
// target.
func (p *Poller) SetParams(n Params) error {
	if err := n.Validate(); err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.params = n
	for _, t := range p.targets {
		t.nudge()
	}
	return nil
}

func (p *Poller) current() Params {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.params
}

// Add polls a target at once and from then on at its interval. It fails with
// ErrSlot, ErrClosed, or for a URL or an engine that cannot be.
func (p *Poller) Add(t Target) error {
	base, err := url.Parse(t.URL)
	switch {
	case err != nil:
		return fmt.Errorf("poll %s: %w", t.Name, err)
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return fmt.Errorf("poll %s: url %q: want http://host or https://host", t.Name, t.URL)
	case t.Engine != "" && t.Engine != VLLM && t.Engine != SGLang && t.Engine != Tautline:
		return fmt.Errorf("poll %s: engine %q: want %q, %q, %q or none", t.Name, t.Engine, VLLM, SGLang, Tautline)
	case t.Interval < 0:
		return fmt.Errorf("poll %s: interval %v: want 0 or more", t.Name, t.Interval)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("poll %s: %w", t.Name, ErrClosed)
	}
	if p.targets[t.Slot] != nil {
		return fmt.Errorf("poll %s: slot %d: %w", t.Name, t.Slot, ErrSlot)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := &target{
		Target: t, poller: p, cancel: cancel,
		done: make(chan struct{}), wake: make(chan struct{}, 1),
		fetch: newFetcher(base, p.params.TLS, &p.buffers),
		requests: [sourceCount][]byte{
			sourceLoad:    get(base, LoadPath, "application/json"),
			sourceMetrics: get(base, "/metrics", "text/plain;version=0.0.4"),
			sourceHealth:  get(base, "/health", "*/*"),
			sourceModels:  get(base, "/v1/models", "application/json"),
		},
	}
	p.targets[t.Slot] = x
	p.wg.Go(func() { x.run(ctx) })
	return nil
}

// Remove stops polling a slot. After it returned, the Sink hears no more of
// that slot. A slot that is not polled is no error.
func (p *Poller) Remove(slot int) {
	p.mu.Lock()
	t := p.targets[slot]
	delete(p.targets, slot)
	p.mu.Unlock()
	if t != nil {
		t.cancel()
		<-t.done
	}
}

// Close stops all polling and waits for its end.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	for slot, t := range p.targets {
		t.cancel()
		delete(p.targets, slot)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// Status is what is known about the polling of one target.
type Status struct {
	Slot     int
	Name     string
	Engine   string // configured or found out; "" = not known
	Source   string // what the last poll that worked read: "load", "metrics", "health" or "models"; "" = none has worked yet
	Polls    uint64
	Failures uint64              // polls that brought nothing
	Errors   [reasonCount]uint64 // requests by reason; a poll may send several
	Failing  int                 // polls in a row that failed, up to now
	Last     string              // text of the last error; stays after recovery
	LastAt   time.Time           // when that was; zero without one
	Models   []string            // learned; do not change
	Listed   []Model             // as the backend listed them last; do not change
}

// Model is a model as a backend lists it.
type Model struct {
	ID    string          `json:"id"`
	Entry json.RawMessage `json:"-"` // whole
}

// Engine returns the kind of engine behind a slot, as Status has it.
func (p *Poller) Engine(slot int) string {
	p.mu.Lock()
	t := p.targets[slot]
	p.mu.Unlock()
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status.Engine
}

// Status appends the state of every target to dst, in no order.
func (p *Poller) Status(dst []Status) []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		t.mu.Lock()
		dst = append(dst, t.status)
		t.mu.Unlock()
	}
	return dst
}
