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
//
// Memory is vLLM's (V1 scheduler as of 0.32, default settings, policy fcfs). A
// waiting request is admitted when all it has so far, prompt and answer, fits
// beside what the running ones hold; nothing is set aside for what answers will
// grow by. When an iteration finds no room for one token more of each answer,
// the request admitted last is preempted until it does, and in that iteration
// nobody is admitted. See Batched.preempt. Three things are simpler here: room
// is counted in tokens, not blocks; a prompt takes all its room when it is
// admitted, not chunk by chunk, so that a prompt that cannot be filled to its
// end is preempted some iterations earlier; and what is admitted together
// shares a prefix before it is computed.
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

// Fits says whether the engine can run the job: an empty cache holds its prompt
// and its answer. vLLM does not start with a longer max_model_len than that.
func (b Batching) Fits(j *traffic.Job) bool { return j.Prompt+j.Output <= b.Capacity }

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
	order   int32          // of the latest admission

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
	preempted := e.relieve()
	budget := e.Budget - len(e.writing)
	prefill := 0
	for _, j := range e.filling {
		budget, prefill = chunk(j, budget, prefill)
	}
	for !preempted && budget > 0 && e.head < len(e.waiting) && len(e.filling)+len(e.writing) < e.MaxRunning {
		j := e.waiting[e.head]
		cached, ok := e.cache.admit(j, len(e.writing))
		if !ok {
			break
		}
		e.waiting[e.head] = nil
		e.head++
		all := j.Prompt + int(j.Work.Kept)
		cached = min(cached, all-1) // the last token is always computed
		if j.Preempted == 0 {
			j.Cached = cached
		}
		e.order++
		j.Work.Left, j.Work.Order = int32(all-cached), e.order
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
		e.bulk = min(e.writing[0].Work.Finish-e.steps, int64(e.cache.room()/len(e.writing)))
		if preempted || e.single { // the next iteration may admit again
			e.bulk = 1
		}
		e.end = now + e.bulkTime(e.bulk)
	default:
		e.busy = false
	}
}

// chunk gives the job what is left of the budget.
func chunk(j *traffic.Job, budget, prefill int) (int, int) {
	x := min(int(j.Work.Left), budget)
	j.Work.Left -= int32(x)
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
		if j.Work.Left > 0 {
			keep = append(keep, e.filling[i])
			continue
		}
		if j.Work.Kept == 0 {
			events.FirstToken(j, now)
		}
		if left := j.Output - int(j.Work.Kept) - 1; left > 0 {
			j.Work.Finish = e.steps + int64(left)
			e.context += j.Prompt + int(j.Work.Kept) + 1
			e.pushWriting(j)
		} else {
			e.cache.finish(j)
			events.Done(j, now)
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
		KVUse: float64(e.Capacity-e.cache.room()) / float64(e.Capacity), HasKV: true,
		CapacityTok: int64(e.Capacity), BlockTok: 16,
	}
}

// Kill implements Model.
func (e *Batched) Kill() []*traffic.Job {
	dead := append([]*traffic.Job(nil), e.waiting[e.head:]...)
	dead = append(append(dead, e.filling...), e.writing...)
	for _, j := range dead {
		restart(j)
	}
	*e = Batched{Batching: e.Batching, cache: newCache(e.Capacity)}
	return dead
}
