package splice

import (
	"sync"
	"time"
)

// waiting are the responses that wait for word from the kernel: their first token
// may pass without the agent.
type waiting struct {
	mu   sync.Mutex
	last uint64                             // number of the latest response
	tell map[uint64]func(ago time.Duration) // by number
}

// enter returns the response's number.
func (w *waiting) enter(tell func(ago time.Duration)) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tell == nil {
		w.tell = make(map[uint64]func(ago time.Duration))
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

func (w *waiting) came(response uint64, ago time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if tell := w.tell[response]; tell != nil { // else: another Splicer's of these maps, in tests
		delete(w.tell, response)
		tell(ago)
	}
}

// FirstTokens tells the responses whose first token the kernel has passed since the
// last call, see ResponseInfo.FirstToken. Call it before anything is read or decided
// that depends on who still waits for his first token; it makes no system call when
// there is nothing to tell.
func (s *Splicer) FirstTokens() {
	if s.set == nil {
		return
	}
	// Of a ring that cannot be read nothing is lost but time: the agent sees the
	// end of each response itself.
	_ = s.set.FirstTokens(s.waiting.came)
}
