package engine

import (
	"math"

	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/load"
)

// Batching are the properties of a continuous-batching engine in the manner of
// vLLM: in every iteration each running answer gets one token, and what is
// left of the token budget goes to prompts, first come, first served, in
// chunks.
//
// An iteration takes Fixed + PerPrefill x prompt tokens + PerRunning x requests
// in the batch + PerKV x tokens of context read by the answers. Attention
// within a prompt is taken as linear.
type Batching struct {
	Budget     int     // max_num_batched_tokens
	MaxRunning int     // max_num_seqs
	Capacity   int     // KV cache, tokens
	Fixed      float64 // ns
	PerPrefill float64 // ns
	PerRunning float64 // ns
	PerKV      float64 // ns
}

// Qwen32B is like Qwen3-32B with tensor parallel 2 on two H100: 8,192 tokens
// in 0.40 s, 64 GiB of KV.
func Qwen32B() Batching {
	return Batching{
		Budget: 8192, MaxRunning: 256, Capacity: 262144,
		Fixed: 12e6, PerPrefill: 47.4e3, PerRunning: 50e3, PerKV: 39,
	}
}

// Slower returns the engine with all its times multiplied.
func (b Batching) Slower(factor float64) Batching {
	b.Fixed *= factor
	b.PerPrefill *= factor
	b.PerRunning *= factor
	b.PerKV *= factor
	return b
}

// Rate is how many prompt tokens/s it prefills when all its budget is prompt.
func (b Batching) Rate() float64 {
	return float64(b.Budget) * 1e9 / (b.Fixed + b.PerPrefill*float64(b.Budget))
}

// Fits says whether the engine could ever run the job: an empty cache would hold
// its prompt and, see cache.admit, half its answer.
func (b Batching) Fits(j *traffic.Job) bool { return j.Prompt+j.Output/2 <= b.Capacity }

// Batched is a running engine.
type Batched struct {
	Batching
	cache   *cache
	waiting []*traffic.Job // waiting[head:]
	head    int
	filling []*traffic.Job // admitted, prompt not done, in order
	writing []*traffic.Job // heap by the step at which the answer ends
	context int            // tokens of context of the writing requests
	steps   int64          // decode steps made

	busy  bool
	start Instant // of the current iteration, or of a bulk of them
	bulk  int64   // decode steps in it
	end   Instant

	single bool // for tests: no bulks
}

// NewBatched returns an idle engine.
func NewBatched(b Batching) *Batched {
	return &Batched{Batching: b, cache: newCache(b.Capacity)}
}

// Submit implements Model.
func (e *Batched) Submit(j *traffic.Job, now Instant) {
	e.waiting = append(e.waiting, j)
	switch {
	case !e.busy:
		e.begin(now)
	case e.bulk > 1 && len(e.waiting)-e.head == 1:
		// Somebody waits for the end of the iteration, not of the bulk. Behind
		// one who waits for memory there is nothing to hurry for.
		e.bulk = e.stepsUntil(now - e.start)
		e.end = e.start + e.bulkTime(e.bulk)
	}
}

// begin admits what fits and starts an iteration, or a bulk of iterations when
// nothing but answers is on and nothing can change before one of them ends.
func (e *Batched) begin(now Instant) {
	budget := e.Budget - len(e.writing)
	prefill := 0
	for _, j := range e.filling {
		budget, prefill = chunk(j, budget, prefill)
	}
	for budget > 0 && e.head < len(e.waiting) && len(e.filling)+len(e.writing) < e.MaxRunning {
		j := e.waiting[e.head]
		cached, ok := e.cache.admit(j)
		if !ok {
			break
		}
		e.waiting[e.head] = nil
		e.head++
		j.Cached = min(cached, j.Prompt-1) // the last token is always computed
		j.Work.Left = j.Prompt - j.Cached
		e.filling = append(e.filling, j)
		budget, prefill = chunk(j, budget, prefill)
	}
	if e.head == len(e.waiting) {
		e.waiting, e.head = e.waiting[:0], 0
	} else if e.head > 1024 && 2*e.head > len(e.waiting) {
		e.waiting = e.waiting[:copy(e.waiting, e.waiting[e.head:])]
		e.head = 0
	}
	e.start, e.busy = now, true
	switch {
	case len(e.filling) > 0:
		e.bulk = 1
		batch := float64(len(e.filling) + len(e.writing))
		e.end = now + Instant(e.Fixed+e.PerPrefill*float64(prefill)+e.PerRunning*batch+e.PerKV*float64(e.context))
	case len(e.writing) > 0:
		e.bulk = e.writing[0].Work.Finish - e.steps
		if e.single {
			e.bulk = 1
		}
		e.end = now + e.bulkTime(e.bulk)
	default:
		e.busy = false
	}
}

// chunk gives the job what is left of the budget.
func chunk(j *traffic.Job, budget, prefill int) (int, int) {
	x := min(j.Work.Left, budget)
	j.Work.Left -= x
	return budget - x, prefill + x
}

// bulkTime is how long k pure decode iterations take: the context grows by one
// token per answer and step.
func (e *Batched) bulkTime(k int64) Instant {
	n, x := float64(len(e.writing)), float64(k)
	first := e.Fixed + e.PerRunning*n + e.PerKV*float64(e.context)
	return Instant(x*first + e.PerKV*n*x*(x-1)/2)
}

// stepsUntil is the smallest number of decode iterations, at least 1 and at
// most the bulk, that take no less than t.
func (e *Batched) stepsUntil(t Instant) int64 {
	n := float64(len(e.writing))
	first := e.Fixed + e.PerRunning*n + e.PerKV*float64(e.context)
	k := int64(float64(t) / first)
	if a := e.PerKV * n / 2; a > 0 {
		b := first - a
		k = int64((-b + math.Sqrt(b*b+4*a*float64(t))) / (2 * a))
	}
	k = min(max(k-1, 1), e.bulk)
	for k < e.bulk && e.bulkTime(k) < t {
		k++
	}
	return k
}

// Next implements Model.
func (e *Batched) Next() Instant {
	if !e.busy {
		return traffic.Never
	}
	return e.end
}

// Step implements Model.
func (e *Batched) Step(now Instant, events Events) {
	e.steps += e.bulk
	e.context += int(e.bulk) * len(e.writing)
	e.cache.write(int(e.bulk) * len(e.writing))
	for len(e.writing) > 0 && e.writing[0].Work.Finish <= e.steps {
		j := e.popWriting()
		e.context -= j.Prompt + j.Output
		e.cache.finish(j)
		events.Done(j, now)
	}
	keep := e.filling[:0]
	for i, j := range e.filling {
		switch {
		case j.Work.Left > 0:
			keep = append(keep, e.filling[i])
		case j.Output <= 1:
			events.FirstToken(j, now)
			e.cache.write(1)
			e.cache.finish(j)
			events.Done(j, now)
		default:
			events.FirstToken(j, now)
			e.cache.write(1)
			j.Work.Finish = e.steps + int64(j.Output-1)
			e.context += j.Prompt + 1
			e.pushWriting(j)
		}
	}
	clear(e.filling[len(keep):])
	e.filling = keep
	e.begin(now)
}

// Sample implements Model. KV in use is what requests hold, as vLLM counts it.
func (e *Batched) Sample() load.Sample {
	return load.Sample{
		Waiting: len(e.waiting) - e.head, Running: len(e.filling) + len(e.writing), HasQueue: true,
		KVUse: float64(min(e.cache.pinned+e.cache.written, e.Capacity)) / float64(e.Capacity), HasKV: true,
		CapacityTok: int64(e.Capacity), BlockTok: 16,
	}
}

// Kill implements Model.
func (e *Batched) Kill() []*traffic.Job {
	dead := append([]*traffic.Job(nil), e.waiting[e.head:]...)
	dead = append(append(dead, e.filling...), e.writing...)
	*e = Batched{Batching: e.Batching, cache: newCache(e.Capacity)}
	return dead
}

func (e *Batched) pushWriting(j *traffic.Job) {
	e.writing = append(e.writing, j)
	i := len(e.writing) - 1
	for i > 0 && ends(j, e.writing[(i-1)/2]) {
		e.writing[i] = e.writing[(i-1)/2]
		i = (i - 1) / 2
	}
	e.writing[i] = j
}

func (e *Batched) popWriting() *traffic.Job {
	top := e.writing[0]
	n := len(e.writing) - 1
	last := e.writing[n]
	e.writing[n] = nil
	e.writing = e.writing[:n]
	i := 0
	for {
		k := 2*i + 1
		if k >= n {
			break
		}
		if k+1 < n && ends(e.writing[k+1], e.writing[k]) {
			k++
		}
		if !ends(e.writing[k], last) {
			break
		}
		e.writing[i] = e.writing[k]
		i = k
	}
	if n > 0 {
		e.writing[i] = last
	}
	return top
}

func ends(a, b *traffic.Job) bool { return a.Work.Finish < b.Work.Finish }
