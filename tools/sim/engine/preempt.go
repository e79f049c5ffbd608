package engine

import "github.com/tautline/tautline/tools/sim/traffic"

// relieve preempts until every answer can grow by a token. It says whether it
// preempted any.
func (e *Batched) relieve() (preempted bool) {
	for e.cache.room() < len(e.writing) {
		e.preempt()
		preempted = true
	}
	return preempted
}

// preempt takes the memory of the request that was admitted last. What it has
// computed stays cached as long as nobody needs the room. It waits before all
// others, and when it is admitted again it prefills its prompt and what it has
// written, as far as that is not cached any more, and writes on.
func (e *Batched) preempt() {
	var j *traffic.Job
	if n := len(e.filling); n > 0 { // they were admitted after all that write
		j = e.filling[n-1]
		e.filling[n-1] = nil
		e.filling = e.filling[:n-1]
		e.cache.abandon(j)
	} else {
		last := 0
		for i, w := range e.writing {
			if w.Work.Order > e.writing[last].Work.Order {
				last = i
			}
		}
		j = e.removeWriting(last)
		written := j.Output - int(j.Work.Finish-e.steps)
		e.context -= j.Prompt + written
		e.cache.pause(j, written)
	}
	j.Preempted++
	if e.head > 0 {
		e.head--
		e.waiting[e.head] = j
		return
	}
	e.waiting = append(e.waiting, nil)
	copy(e.waiting[1:], e.waiting)
	e.waiting[0] = j
}

// restart makes the job one that has written nothing.
func restart(j *traffic.Job) {
	if j.Work.Kept > 0 {
		j.Segs = j.Segs[:len(j.Segs)-1]
	}
	j.Work.Kept, j.Preempted = 0, 0
}

// The writing requests are a heap by the end of their answers.

func (e *Batched) pushWriting(j *traffic.Job) {
	e.writing = append(e.writing, j)
	e.rise(len(e.writing)-1, j)
}

// popWriting takes out the one that ends first.
func (e *Batched) popWriting() *traffic.Job { return e.removeWriting(0) }

func (e *Batched) removeWriting(i int) *traffic.Job {
	out := e.writing[i]
	n := len(e.writing) - 1
	last := e.writing[n]
	e.writing[n] = nil
	e.writing = e.writing[:n]
	if i == n {
		return out
	}
	if i > 0 && ends(last, e.writing[(i-1)/2]) {
		e.rise(i, last)
		return out
	}
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
	e.writing[i] = last
	return out
}

// rise puts the job at i or above.
func (e *Batched) rise(i int, j *traffic.Job) {
	for i > 0 && ends(j, e.writing[(i-1)/2]) {
		e.writing[i] = e.writing[(i-1)/2]
		i = (i - 1) / 2
	}
	e.writing[i] = j
}

func ends(a, b *traffic.Job) bool { return a.Work.Finish < b.Work.Finish }
