package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/sim/traffic"
)

// byHand is Batched for prompts that share nothing, slow and obvious: iteration
// by iteration, with lists in the order of admission and, as the cache, a list
// of what preempted jobs left behind.
type byHand struct {
	b       Batching
	waiting []*handJob
	running []*handJob // in the order of admission
	left    []*handJob // not running, the one that stopped longest ago first
}

type handJob struct {
	prompt, output      int
	arrive, first, done Instant
	computed            int // tokens of prompt and answer in the cache
	written             int
	preempted           int
	midway              int  // of these, before the prompt was filled
	kept                int  // written when it was preempted
	named               bool // the whole answer stays in the cache
}

// held is what running jobs hold: their prompt and answer so far, and room for
// the first token of those that have still to fill.
func (h *byHand) held() (n int) {
	for _, j := range h.running {
		n += j.prompt + j.written
		if j.filling() {
			n++
		}
	}
	return n
}

func (j *handJob) filling() bool { return j.computed < j.prompt+j.written }

// trim makes what was left behind fit beside what is held.
func (h *byHand) trim() {
	over := h.held() - h.b.Capacity
	for _, j := range h.left {
		over += j.computed
	}
	for _, j := range h.left {
		cut := min(max(over, 0), j.computed)
		j.computed -= cut
		over -= cut
	}
}

func (h *byHand) run(jobs []*handJob) {
	now := Instant(0)
	for next := 0; ; {
		for next < len(jobs) && jobs[next].arrive <= now {
			h.waiting = append(h.waiting, jobs[next])
			next++
		}
		if len(h.waiting)+len(h.running) == 0 {
			if next == len(jobs) {
				return
			}
			now = jobs[next].arrive
			continue
		}
		now += h.iterate(now)
	}
}

// iterate makes one iteration and returns how long it takes.
func (h *byHand) iterate(now Instant) Instant {
	writing := func() (n int) {
		for _, j := range h.running {
			if !j.filling() {
				n++
			}
		}
		return n
	}
	preempted := false
	for h.held()+writing() > h.b.Capacity {
		j := h.running[len(h.running)-1]
		h.running = h.running[:len(h.running)-1]
		h.waiting = slices.Insert(h.waiting, 0, j)
		h.left = append(h.left, j)
		j.preempted++
		if j.filling() {
			j.midway++
		}
		j.kept = j.written
		preempted = true
	}
	budget := h.b.Budget - writing()
	fill, context, tokens := map[*handJob]int{}, 0, 0
	give := func(j *handJob) {
		fill[j] = min(budget, j.prompt+j.written-j.computed)
		budget -= fill[j]
		tokens += fill[j]
	}
	for _, j := range h.running {
		if j.filling() {
			give(j)
		} else {
			context += j.prompt + j.written
		}
	}
	grow := writing()
	for !preempted && budget > 0 && len(h.waiting) > 0 && len(h.running) < h.b.MaxRunning {
		j := h.waiting[0]
		if h.held()+grow+j.prompt+j.written+1 > h.b.Capacity {
			break
		}
		h.waiting = h.waiting[1:]
		h.running = append(h.running, j)
		if i := slices.Index(h.left, j); i >= 0 {
			h.left = slices.Delete(h.left, i, i+1)
		}
		all := j.computed == j.prompt+j.written
		if all {
			j.computed-- // the last token is always computed
		}
		h.trim()
		give(j)
	}
	took := Instant(h.b.Fixed + h.b.PerPrefill*float64(tokens) + h.b.PerRunning*float64(len(h.running)) + h.b.PerKV*float64(context))
	for _, j := range h.running {
		writes := !j.filling()
		j.computed += fill[j]
		if writes || !j.filling() {
			if j.written == 0 {
				j.first = now + took
			}
			j.computed++ // the cache counts a token when it is written, not when it is read
			j.written++
		}
	}
	h.trim()
	h.running = slices.DeleteFunc(h.running, func(j *handJob) bool {
		if j.written < j.output {
			return false
		}
		j.done = now + took
		if !j.named {
			j.computed = j.prompt + j.kept
		}
		h.left = append(h.left, j)
		return true
	})
	return took
}

func TestPreemptionAgainstTheObvious(t *testing.T) {
	preempted, midway := 0, 0
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		b := Qwen32B()
		b.Capacity, b.Budget, b.MaxRunning = 4000+rnd.IntN(8000), 64+rnd.IntN(1500), 8+rnd.IntN(30)
		jobs := make([]traffic.Job, 150)
		hand := make([]*handJob, len(jobs))
		at := Instant(0)
		for i := range jobs {
			j := &jobs[i]
			j.Index = i
			j.Reset()
			at += Instant(rnd.ExpFloat64() * float64(400*time.Millisecond))
			j.Arrive = at
			j.Add(traffic.Segment{ID: uint64(i) + 1, Tokens: 1 + rnd.IntN(2000)})
			j.Output = 1 + rnd.IntN(600)
			if rnd.IntN(2) > 0 {
				j.Answer = traffic.Mix(uint64(i), 9)
			}
			hand[i] = &handJob{prompt: j.Prompt, output: j.Output, arrive: at, named: j.Answer != 0}
		}
		f := drive(NewBatched(b), jobs, nil)
		(&byHand{b: b}).run(hand)
		for i, h := range hand {
			preempted += h.preempted
			midway += h.midway
			if int(jobs[i].Preempted) != h.preempted {
				t.Fatalf("seed %d job %d: preempted %d times, by hand %d", seed, i, jobs[i].Preempted, h.preempted)
			}
			for _, d := range []Instant{f.first[i] - h.first, f.done[i] - h.done} {
				if d > time.Millisecond || d < -time.Millisecond {
					t.Fatalf("seed %d job %d: first token %v, end %v, by hand %v, %v", seed, i, f.first[i], f.done[i], h.first, h.done)
				}
			}
		}
	}
	if preempted < 100 || midway < 10 {
		t.Errorf("%d preemptions, %d in the middle of a prompt: the test proves little", preempted, midway)
	}
}
