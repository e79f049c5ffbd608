package splice

import (
	"sync"
	"time"
)

// waiting are the responses that wait for word from the kernel: of what it passes
// without the agent.
type waiting struct {
	mu   sync.Mutex
	last uint64          // number of the latest response
	tell map[uint64]word // by number
}

// A word is whom to tell of a response.
type word struct {
	first func(ago time.Duration) // of its first token; nil: nobody, or nobody any more
	usage func(end []byte)        // of what may tell the usage; nil: nobody
}

// enter returns the response's number.
func (w *waiting) enter(tell word) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tell == nil {
		w.tell = make(map[uint64]word)
	}
	w.last++
	w.tell[w.last] = tell
	return w.last
}

// leave returns when nobody is told any more.
func (w *waiting) leave(response uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tell, response)
}

// first tells of a first token. Of a number that nobody waits for it may be that the
// response has ended, or is another Splicer's of these maps, in tests.
func (w *waiting) first(response uint64, ago time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if tell := w.tell[response]; tell.first != nil {
		w.tell[response] = word{usage: tell.usage}
		tell.first(ago)
	}
}

// usage tells of the end of a message that may tell the usage.
func (w *waiting) usage(response uint64, end []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if tell := w.tell[response]; tell.usage != nil {
		tell.usage(end)
	}
}

// CatchUp tells the responses what the kernel has passed of them since the last call,
// see ResponseInfo.FirstToken and Usage. Call it before anything is read or decided that
// depends on who still waits for his first token; it makes no system call when there is
// nothing to tell.
func (s *Splicer) CatchUp() {
	if s.set == nil {
		return
	}
	// Of a ring that cannot be read nothing is lost but time, since the agent sees the
	// end of each response itself, and a usage.
	_ = s.set.FirstTokens(s.waiting.first)
	_ = s.set.UsageEnds(s.waiting.usage)
}
