package decide

import "math"

// The memory of a backend is as large as its engine's cache, by what the engine or the
// configuration says. There may be more, where another tier keeps what the first gives up,
// and less than the configuration says, but not less than the engine itself does. What was
// in the cache, as responses tell, corrects it.

const (
	// sizeStep is by how much a prompt that was wholly misjudged changes the size,
	// relatively; sizeGrow is how much more one counts that shows the memory too small,
	// which is seen only where a request happens to go to who holds what was forgotten.
	sizeStep = 0.1
	sizeGrow = 2
	// sizeMost bounds the factor, and its inverse.
	sizeMost = 8
	// sizeBlur is the share of a stretch, and sizeBlocks the tokens, by which known and
	// cached tokens may differ for other reasons: tokens are estimated, engines cache
	// whole blocks.
	sizeBlur   = 0.25
	sizeBlocks = 256
	// sizeQueue is the number of own uncached tokens in flight before a prompt from which
	// on it waits so long that what it would have found may have gone meanwhile.
	sizeQueue = 120000
	// sizeSure is how much more must show the memory too small than too large before it
	// grows: one that is too large fails everywhere, one that is too small only costs.
	sizeSure  = 30
	sizeDecay = 0.98
)

// size is what was learned about the cache of one backend.
type size struct {
	log              float64 // of the factor to what the engine or the configuration says
	least            float64 // factor that makes it as large as the engine itself says; 0 = it does not
	stale, forgotten float64 // forgetful sums of tokens believed and not there, there and not believed
	vain             float64 // tokens believed of prompts that ended before they were prefilled
	candid           bool    // the engine has told that nothing was cached
	epoch            uint32  // of the engine's process, and of what it is compared with
}

// expectation is what was known of a prompt when it was sent.
type expectation struct {
	tokens int64 // of the prompt
	known  int64 // of them, in the memory of the backend
	once   int64 // of them, known or given up for want of room
	queue  int64 // own uncached tokens that were in flight there
	epoch  uint32
}

// scaled is e for a prompt whose length is known by now: bytes per token are a mean.
func (e expectation) scaled(tokens int64) expectation {
	if tokens <= 0 || e.tokens <= 0 {
		return e
	}
	by := float64(tokens) / float64(e.tokens)
	e.known, e.once = int64(float64(e.known)*by), int64(float64(e.once)*by)
	e.tokens = tokens
	return e
}

// restart forgets what was learned: there is another engine, or another size to compare with.
func (s *size) restart() { *s = size{epoch: s.epoch + 1, least: s.least} }

// cancelled takes in a prompt that ended before it was prefilled. It was believed to be
// there from its head on.
func (s *size) cancelled(e *expectation) {
	if e.epoch == s.epoch {
		s.vain += float64(e.tokens - e.known)
	}
}

// silent takes in that the engine did not say what was cached. If something must have
// been, it does not tell of misses: the same engine may in one API and not in another.
func (s *size) silent(e *expectation) {
	if apart(e.known, 0) > 0 {
		s.candid = false
	}
}

// factor is how many times as much there is room for as the engine or the configuration says.
func (s *size) factor() float64 { return max(math.Exp(s.log), s.least) }

// learn takes in how many tokens the engine found in its cache. Some engines say nothing
// where that is none: then only what they found would count, and nothing is learned.
func (s *size) learn(e *expectation, cached int64) {
	s.candid = s.candid || cached == 0
	if e.tokens <= 0 || !s.candid || e.epoch != s.epoch {
		return
	}
	stale := apart(e.known-cached, e.known)
	forgotten := apart(min(cached, e.once)-e.known, e.once-e.known)
	s.stale = sizeDecay*s.stale + stale
	s.forgotten = sizeDecay*s.forgotten + forgotten
	if s.forgotten < sizeSure*s.stale {
		forgotten = 0 // the order of use is off, not the size
	}
	vain := min(s.vain, stale)
	s.vain = sizeDecay * (s.vain - vain)
	stale -= vain
	// What was sent before may not have been prefilled yet, or be gone by now.
	if q := float64(e.queue); q >= stale || q > sizeQueue {
		stale = 0
	}
	most := math.Log(sizeMost)
	s.log = min(max(s.log+sizeStep*(sizeGrow*forgotten-stale)/float64(e.tokens), math.Log(max(s.least, 1./sizeMost))), most)
}

// apart returns by how many tokens of a stretch two counts differ, 0 where that may be
// chance.
func apart(tokens, stretch int64) float64 {
	if float64(tokens) < sizeBlur*float64(stretch)+sizeBlocks {
		return 0
	}
	return float64(tokens)
}
