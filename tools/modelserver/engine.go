package modelserver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// seq is one request in the engine. Its handler reads produced; everything
// else belongs to the engine's lock.
type seq struct {
	blocks []hash // of prompt and answer: every full block's prefix
	prompt int    // tokens
	answer int    // tokens that will be produced

	state    seqState
	cached   int    // prompt tokens found in the prefix cache
	computed int    // prompt tokens in KV memory, cached ones included
	planned  int    // prompt tokens of the step under way
	filled   int    // leading blocks already hashed, by this request or another
	held     []hash // hashed blocks this request refers to
	fresh    int    // unhashed blocks it holds

	produced atomic.Int64  // answer tokens so far
	wake     chan struct{} // told of progress; capacity 1
}

type seqState uint8

const (
	seqWaiting seqState = iota
	seqRunning
	seqGone // finished or aborted
)

func newSeq(blocks []hash, prompt, answer int) *seq {
	return &seq{blocks: blocks, prompt: prompt, answer: answer, wake: make(chan struct{}, 1)}
}

// wait blocks until more than have tokens of the answer exist and returns how
// many do. It fails with the context's error.
func (s *seq) wait(ctx context.Context, have int) (int, error) {
	for {
		if n := int(s.produced.Load()); n > have {
			return n, nil
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return have, context.Cause(ctx)
		}
	}
}

func (s *seq) give(n int64) {
	s.produced.Add(n)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Stats are the engine's counters and gauges. Counters are floats, as on the
// metrics page.
type Stats struct {
	Running, Waiting int
	UsedBlocks       int     // blocks with a user
	CachedBlocks     int     // blocks kept for their prefix only
	PromptTokens     float64 // computed and cached
	AnswerTokens     float64
	CacheQueries     float64 // prompt tokens looked up
	CacheHits        float64 // prompt tokens found
	Finished         float64
	Aborted          float64
	Steps            float64
}

// engine schedules requests as vLLM does: each step gives every decoding
// request one token and spends what is left of the token budget on prompts,
// those already running first, then the queue in order of arrival. A step
// takes its prompt tokens at the prefill rate, plus the token delay when
// anything decodes.
//
// plan and apply are one step without a clock; run gives them one.
type engine struct {
	rate   float64
	budget int
	width  int
	delay  time.Duration

	kick chan struct{} // work has come; capacity 1

	mu      sync.Mutex
	pool    *blockPool
	waiting []*seq // [0] is the oldest
	running []*seq // in order of admission
	n       Stats
}

func newEngine(c Config) *engine {
	return &engine{
		rate:   c.PrefillRate,
		budget: c.MaxBatchedTokens,
		width:  c.MaxSeqs,
		delay:  c.TokenDelay,
		kick:   make(chan struct{}, 1),
		pool:   newBlockPool(c.CacheBlocks),
	}
}

// fits reports whether a request can ever run.
func (e *engine) fits(prompt, answer int) bool {
	return blocksFor(prompt+answer) <= e.pool.size
}

func blocksFor(tokens int) int { return (tokens + BlockTokens - 1) / BlockTokens }

func (e *engine) submit(s *seq) {
	e.mu.Lock()
	e.waiting = append(e.waiting, s)
	e.mu.Unlock()
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// abort takes the request out at once, unless it has finished.
func (e *engine) abort(s *seq) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.state == seqGone {
		return
	}
	if s.state == seqWaiting {
		e.waiting = without(e.waiting, s)
	} else {
		e.running = without(e.running, s)
	}
	e.n.Aborted++
	e.drop(s)
}

// drop ends a request that is in no list any more.
func (e *engine) drop(s *seq) {
	s.state = seqGone
	e.pool.release(s.held, s.fresh)
	s.held, s.fresh = nil, 0
}

func without(list []*seq, s *seq) []*seq {
	for i, x := range list {
		if x == s {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			return list[:len(list)-1]
		}
	}
	return list
}

// plan lays out the next step and returns how long it takes. ok is false when
// there is nothing to do.
func (e *engine) plan() (d time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	budget, prefill, decode := e.budget, 0, 0
	for _, s := range e.running {
		if s.computed == s.prompt {
			decode++
			budget--
		}
	}
	chunk := func(s *seq) {
		s.planned = min(s.prompt-s.computed, budget)
		budget -= s.planned
		prefill += s.planned
	}
	for _, s := range e.running {
		if s.computed < s.prompt && budget > 0 {
			chunk(s)
		}
	}
	for len(e.waiting) > 0 && len(e.running) < e.width && budget > 0 {
		s := e.waiting[0]
		if !e.admit(s) {
			break
		}
		e.waiting[0] = nil
		e.waiting = e.waiting[1:]
		e.running = append(e.running, s)
		chunk(s)
	}
	if prefill == 0 && decode == 0 {
		return 0, false
	}
	e.n.Steps++
	d = time.Duration(float64(prefill) / e.rate * float64(time.Second))
	if decode > 0 {
		d += e.delay
	}
	return d, true
}

// admit looks the prompt up in the prefix cache and takes the blocks that
// prompt and answer need. The last token is always computed, as in vLLM.
func (e *engine) admit(s *seq) bool {
	full := (s.prompt - 1) / BlockTokens
	hit := e.pool.hit(s.blocks[:min(full, len(s.blocks))])
	fresh := blocksFor(s.prompt+s.answer) - hit
	if !e.pool.take(s.blocks, hit, fresh) {
		return false
	}
	s.state = seqRunning
	s.held, s.fresh = append(s.held, s.blocks[:hit]...), fresh
	s.filled = hit
	s.cached = hit * BlockTokens
	s.computed = s.cached
	e.n.CacheQueries += float64(s.prompt)
	e.n.CacheHits += float64(s.cached)
	e.n.PromptTokens += float64(s.cached)
	return true
}

// apply makes the planned step's results visible.
func (e *engine) apply() {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := e.running[:0]
	for _, s := range e.running {
		switch {
		case s.computed == s.prompt:
			e.token(s)
		case s.planned > 0:
			s.computed += s.planned
			e.n.PromptTokens += float64(s.planned)
			s.planned = 0
			if s.computed == s.prompt {
				e.token(s)
			}
		}
		e.fill(s)
		if int(s.produced.Load()) < s.answer {
			kept = append(kept, s)
			continue
		}
		e.n.Finished++
		e.drop(s)
	}
	for i := len(kept); i < len(e.running); i++ {
		e.running[i] = nil
	}
	e.running = kept
}

func (e *engine) token(s *seq) {
	e.n.AnswerTokens++
	s.give(1)
}

// fill hashes the blocks whose tokens are now in KV memory.
func (e *engine) fill(s *seq) {
	full := (s.computed + int(s.produced.Load())) / BlockTokens
	for ; s.filled < min(full, len(s.blocks)); s.filled++ {
		if e.pool.fill(s.blocks[s.filled]) {
			s.fresh--
			s.held = append(s.held, s.blocks[s.filled])
		}
	}
}

// snapshot returns the counters and gauges of this moment.
func (e *engine) snapshot() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.n
	n.Running, n.Waiting = len(e.running), len(e.waiting)
	n.UsedBlocks, n.CachedBlocks = e.pool.used, e.pool.cached
	return n
}

// forget empties the prefix cache and the counters, as a restart does.
// Requests in the engine go on.
func (e *engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pool.clearCached()
	e.n = Stats{}
}

// run works until the context ends. Steps follow each other without gaps
// however late the timer fires, so that the rates hold under load.
func (e *engine) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	end := time.Now()
	for {
		d, ok := e.plan()
		if !ok {
			select {
			case <-e.kick:
				end = time.Now()
				continue
			case <-ctx.Done():
				return
			}
		}
		end = end.Add(d)
		if left := time.Until(end); left > 0 {
			timer.Reset(left)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		e.apply()
	}
}
