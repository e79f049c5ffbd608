package poll

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tautline/tautline/userspace/load"
)

// source is a way to ask a backend how it is, best first.
type source uint8

const (
	sourceLoad    source = iota // of another agent
	sourceMetrics               // of an engine
	sourceHealth                // well or not, without figures
	sourceModels                // for servers without a health page
	sourceCount
)

var sourceNames = [sourceCount]string{"load", "metrics", "health", "models"}

// first is the best way to ask this target. Whether it is an agent is found out here:
// one that was asked for metrics would show those of any engine.
func (t *target) first() source {
	if t.Engine == VLLM || t.Engine == SGLang {
		return sourceMetrics
	}
	return sourceLoad
}

// next is the way to ask it when this one brings nothing.
func (t *target) next() source {
	if t.source == sourceLoad && t.Engine == Tautline {
		return sourceHealth
	}
	return t.source + 1
}

// target polls one backend. All but status is its goroutine's own.
type target struct {
	Target
	poller   *Poller
	cancel   context.CancelFunc
	done     chan struct{}
	wake     chan struct{} // params changed; capacity 1
	fetch    *fetcher
	requests [sourceCount][]byte
	parser   parser

	source  source
	known   []string    // models as last told
	last    load.Sample // of the last poll that worked
	failing bool        // the last poll failed, or there was none
	learned bool        // the models are as told, until something happens
	checked time.Time   // when models and source were last looked at

	mu     sync.Mutex
	status Status
}

func (t *target) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run polls until the context ends. The first wait is of random length, so
// that targets added together spread over the interval.
func (t *target) run(ctx context.Context) {
	defer close(t.done)
	defer t.fetch.close()
	defer t.cancel()
	t.mu.Lock()
	t.status.Slot, t.status.Name = t.Slot, t.Name
	if t.Engine != Tautline { // to be found out, whatever is configured
		t.status.Engine = t.Engine
	}
	t.mu.Unlock()
	t.failing = true
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for first := true; ; first = false {
		p := t.poller.current()
		sent := time.Now()
		t.poll(ctx, &p)
		for waiting := true; waiting; {
			wait := t.interval(&p)
			if first {
				wait = time.Duration(rand.Float64() * float64(wait))
			} else {
				wait += time.Duration((rand.Float64() - 0.5) * 0.2 * float64(wait))
			}
			timer.Reset(time.Until(t.together(sent.Add(wait), t.interval(&p))))
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
				waiting = false
			case <-t.wake:
				p = t.poller.current()
			}
		}
	}
}

// together moves a due time to the next tenth of the interval, counted from the
// poller's start. So targets poll in groups: a process that wakes ten times a
// second finds its caches warm for nine polls of ten.
func (t *target) together(due time.Time, interval time.Duration) time.Time {
	grid := interval / 10
	since := due.Sub(t.poller.start)
	return t.poller.start.Add(since.Truncate(grid) + grid)
}

func (t *target) interval(p *Params) time.Duration {
	if t.Interval > 0 {
		return t.Interval
	}
	return p.Interval
}

// poll asks once and tells the sink, unless the target was removed meanwhile.
func (t *target) poll(ctx context.Context, p *Params) {
	stale := time.Since(t.checked) >= p.Refresh || t.failing
	if stale {
		t.source = t.first()
		t.checked = time.Now()
	}
	now := t.poller.clock()
	s, no := t.ask(ctx, p)
	if ctx.Err() != nil {
		return
	}
	inARow := t.count(no)
	if no != nil {
		t.failing = true
		t.tellFailure(no, inARow, now)
		return
	}
	if stale || restarted(&t.last, &s) {
		t.learned = false
	}
	t.failing, t.last = false, s
	if !t.learned && len(t.Models) == 0 && t.source != sourceLoad {
		t.learn(ctx, p)
	}
	if ctx.Err() != nil {
		return
	}
	t.poller.sink.Observe(t.Slot, s, now)
}

// tellFailure tells the sink what a poll without a result says about the backend. One
// broken connection may be chance; two in a row mean that nobody answers at the port
// that requests go to, too. Where somebody takes the connection and hangs up it may be
// for this question only: requests may find out.
func (t *target) tellFailure(no *failure, inARow int, now time.Duration) {
	switch {
	case no.reason != ReasonConnect || inARow < 2:
		t.poller.sink.PollFailed(t.Slot, now)
	case no.nobody():
		t.poller.sink.Unreachable(t.Slot, now)
	default:
		t.poller.sink.PollFailed(t.Slot, now)
		t.poller.sink.ConnectFailed(t.Slot, now)
	}
}

// restarted reports that the engine began anew between two samples.
func restarted(old, new *load.Sample) bool {
	return old.HasStartTime && new.HasStartTime && old.StartTime != new.StartTime ||
		old.HasPromptToks && new.HasPromptToks && new.PromptTokens < old.PromptTokens
}

// ask tries the known source, and those after it when the backend answers but
// has nothing to say there. A backend that does not answer at all is asked
// once only, but again where it hangs up, or nobody is there, and it was asked
// whether it is an agent: that may be the engine's way to refuse a path.
func (t *target) ask(ctx context.Context, p *Params) (load.Sample, *failure) {
	for ; ; t.source = t.next() {
		s, no := t.from(ctx, p, t.source)
		guess := t.source == sourceLoad && t.Engine == "" // that it is an agent
		switch {
		case no == nil || t.source == sourceModels:
			return s, no
		case guess && no.reason != ReasonTimeout: // whatever an engine does about a path that it does not know
		case !no.elsewhere():
			return s, no
		default:
			t.note(no)
		}
	}
}

// elsewhere reports that the backend lives but has nothing understood here.
func (f *failure) elsewhere() bool {
	switch f.reason {
	case ReasonGarbage, ReasonTooLarge, ReasonRedirect:
		return true
	case ReasonStatus:
		return f.status < 500 || f.status == http.StatusNotImplemented
	}
	return false
}

func (t *target) from(ctx context.Context, p *Params, from source) (load.Sample, *failure) {
	r := t.requests[from]
	switch from {
	case sourceLoad:
		s, names, no := t.fetch.agent(ctx, p, r)
		if no == nil && len(t.Models) == 0 && len(names) > 0 && ctx.Err() == nil {
			t.tell(names)
		}
		return s, no
	case sourceHealth:
		return load.Sample{}, t.fetch.get(ctx, p, r, discard)
	case sourceModels:
		_, _, no := t.fetch.models(ctx, p, r)
		return load.Sample{}, no
	}
	t.parser.reset(t.Engine, t.Models)
	if no := t.fetch.metrics(ctx, p, r, &t.parser); no != nil {
		return load.Sample{}, no
	}
	s, err := t.parser.sample()
	if err != nil {
		if t.Engine != "" { // whoever configured it may have meant the other
			err = fmt.Errorf("%w of %s", err, t.Engine)
		}
		return load.Sample{}, &failure{reason: ReasonGarbage, err: err}
	}
	return s, nil
}

// learn asks for the served models and tells the sink when they changed. A
// failure leaves what was known; it is tried again with the next poll, or with
// the next refresh when the backend says that it has no list for us.
func (t *target) learn(ctx context.Context, p *Params) {
	names, listed, no := t.fetch.models(ctx, p, t.requests[sourceModels])
	if no != nil {
		t.note(no)
		t.learned = no.elsewhere() && no.reason != ReasonGarbage
		return
	}
	t.learned = true
	t.mu.Lock()
	t.status.Listed = listed
	t.mu.Unlock()
	if ctx.Err() == nil {
		t.tell(names)
	}
}

// tell tells the sink the served models if they are others than before.
func (t *target) tell(names []string) {
	if slices.Equal(names, t.known) {
		return
	}
	t.known = names
	t.mu.Lock()
	t.status.Models = names
	t.mu.Unlock()
	t.poller.sink.SetModels(t.Slot, slices.Clone(names))
}

// note records a request that brought nothing.
func (t *target) note(no *failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.Errors[no.reason]++
	t.status.Last, t.status.LastAt = no.String(), time.Now()
}

// count records a poll and returns how many have failed in a row.
func (t *target) count(no *failure) (inARow int) {
	if no != nil {
		t.note(no)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.Polls++
	if no != nil {
		t.status.Failures++
		t.status.Failing++
		return t.status.Failing
	}
	t.status.Failing = 0
	t.status.Source = sourceNames[t.source]
	switch t.source {
	case sourceMetrics:
		t.status.Engine = t.parser.engine
	case sourceLoad:
		t.status.Engine = Tautline
	}
	return 0
}
