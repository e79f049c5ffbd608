package modelserver

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// bench is an engine on a clock of its own.
type bench struct {
	*engine
	now time.Duration
}

func newBench(change func(*Config)) *bench {
	c := Default()
	c.PrefillRate, c.MaxBatchedTokens, c.TokenDelay = 20480, 8192, 10*time.Millisecond
	change(&c)
	return &bench{engine: newEngine(c)}
}

// step runs one step; false when there is nothing to do.
func (b *bench) step() bool {
	d, ok := b.plan()
	if ok {
		b.now += d
		b.apply()
	}
	return ok
}

// prompt is a sequence whose prompt of n tokens begins like all of its kind.
func prompt(kind byte, tail string, n, answer int) *seq {
	text := bytes.Repeat([]byte{kind}, (n+answer)*bytesPerToken)
	copy(text[n*bytesPerToken-len(tail):], tail)
	blocks, _ := chain(0, text)
	return newSeq(blocks, n, answer)
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if math.Abs(float64(got-want)) > float64(time.Microsecond) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// tokensTime is what a number of prompt tokens takes.
func tokensTime(n int) time.Duration { return time.Duration(float64(n) / 20480 * float64(time.Second)) }

// TestBacklogBuildsUpAtThePrefillRate: the article's 20,480 tokens/s; the
// first tokens come in order of arrival, each after all prompts before it.
func TestBacklogBuildsUpAtThePrefillRate(t *testing.T) {
	b := newBench(func(c *Config) { c.TokenDelay = 0 })
	const n = 5
	var list []*seq
	for i := range n {
		s := prompt(byte('a'+i), "", 55000, 1)
		list = append(list, s)
		b.submit(s)
	}
	for i, s := range list {
		for s.produced.Load() == 0 {
			if !b.step() {
				t.Fatalf("nothing to do before token of request %d", i)
			}
		}
		shared := 0 // tokens of later prompts in the last chunk
		for _, later := range list[i+1:] {
			shared += later.computed
		}
		near(t, fmt.Sprint("first token of request ", i), b.now, tokensTime((i+1)*55000+shared))
		if want := n - 1 - i; i < n-2 && b.snapshot().Waiting < want-1 {
			t.Errorf("after request %d: %d waiting, want about %d", i, b.snapshot().Waiting, want-1)
		}
	}
	if got := b.snapshot(); got.PromptTokens != n*55000 || got.Finished != n {
		t.Errorf("counters %+v", got)
	}
}

func TestOneChunkTakesItsShareOfTheRate(t *testing.T) {
	for _, tokens := range []int{1, 100, 8192, 16384, 20000} {
		b := newBench(func(*Config) {})
		b.submit(prompt('x', "", tokens, 1))
		for b.step() {
		}
		near(t, fmt.Sprint(tokens, " tokens"), b.now, tokensTime(tokens))
	}
}

func TestCachedPrefixIsNotPrefilled(t *testing.T) {
	b := newBench(func(*Config) {})
	b.submit(prompt('x', "first", 55000, 1))
	for b.step() {
	}
	from := b.now
	again := prompt('x', "other", 55000, 1)
	b.submit(again)
	for b.step() {
	}
	if again.cached != 54992 { // all blocks but the last, in which the tails differ
		t.Errorf("%d tokens cached, want 54992", again.cached)
	}
	near(t, "time of the second", b.now-from, tokensTime(8))
	same := prompt('x', "other", 55000, 1)
	b.submit(same)
	for b.step() {
	}
	if same.cached >= 55000 {
		t.Errorf("%d of 55000 tokens cached: the last must be computed", same.cached)
	}
}

func TestDecodeSlotsAndQueue(t *testing.T) {
	b := newBench(func(c *Config) { c.MaxSeqs = 4 })
	for i := range 10 {
		b.submit(prompt(byte('a'+i), "", 16, 11))
	}
	if n := b.snapshot(); n.Waiting != 10 || n.Running != 0 {
		t.Errorf("before the first step: %d waiting, %d running", n.Waiting, n.Running)
	}
	b.step()
	if n := b.snapshot(); n.Waiting != 6 || n.Running != 4 {
		t.Errorf("after the first step: %d waiting, %d running, want 6 and 4", n.Waiting, n.Running)
	}
	prefilled := b.now
	for range 10 {
		b.step()
	}
	near(t, "ten tokens in a batch of four", b.now-prefilled, 100*time.Millisecond)
	if n := b.snapshot(); n.Finished != 4 || n.AnswerTokens != 44 {
		t.Errorf("counters %+v, want 4 finished with 44 tokens", n)
	}
	for b.step() {
	}
	if n := b.snapshot(); n.Finished != 10 || n.Running != 0 || n.Waiting != 0 || n.UsedBlocks != 0 {
		t.Errorf("at the end %+v", n)
	}
}

func TestPrefillSlowsThoseThatDecode(t *testing.T) {
	b := newBench(func(*Config) {})
	s := prompt('a', "", 16, 100)
	b.submit(s)
	b.step()
	b.submit(prompt('b', "", 50000, 1))
	from := b.now
	b.step()
	// One token took the rest of a full chunk beside the token delay.
	near(t, "step", b.now-from, 10*time.Millisecond+tokensTime(8191))
	if s.produced.Load() != 2 {
		t.Errorf("%d tokens, want 2", s.produced.Load())
	}
}

func TestFullMemoryMakesRequestsWait(t *testing.T) {
	b := newBench(func(c *Config) { c.CacheBlocks = 100 })
	one, two := prompt('a', "", 1000, 8), prompt('b', "", 1000, 8)
	b.submit(one)
	b.submit(two)
	b.step()
	if n := b.snapshot(); n.Running != 1 || n.Waiting != 1 || n.UsedBlocks != 63 {
		t.Errorf("%+v, want one running with 63 blocks, one waiting", n)
	}
	b.abort(one)
	if n := b.snapshot(); n.Running != 0 || n.UsedBlocks != 0 || n.Aborted != 1 {
		t.Errorf("after the abort %+v", n)
	}
	b.abort(one) // once only
	b.step()
	if n := b.snapshot(); n.Running != 1 || n.Waiting != 0 || n.Aborted != 1 {
		t.Errorf("%+v, want the other running", n)
	}
	b.abort(two)
	if b.fits(1600, 1) || !b.fits(1599, 1) {
		t.Error("fits: want 100 blocks of 16 tokens")
	}
}

func TestEvictionTakesTheLeastRecentTailFirst(t *testing.T) {
	b := newBench(func(c *Config) { c.CacheBlocks = 100 })
	run := func(s *seq) int {
		b.submit(s)
		for b.step() {
		}
		return s.cached
	}
	run(prompt('a', "", 640, 1))  // 40 blocks
	run(prompt('b', "", 640, 1))  // 40 more
	run(prompt('c', "", 480, 16)) // 31: 11 of a's must go, its tail
	if got := b.pool.hit(prompt('a', "", 640, 1).blocks); got < 28 || got > 30 {
		t.Errorf("%d leading blocks of the oldest are left, want about 29", got)
	}
	if got := b.pool.hit(prompt('b', "", 640, 1).blocks); got != 40 {
		t.Errorf("%d leading blocks of the next are left, want all 40", got)
	}
}

// TestPoolKeepsItsBooks: whatever requests do, blocks neither leak nor
// multiply.
func TestPoolKeepsItsBooks(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench(func(c *Config) { c.CacheBlocks, c.MaxSeqs, c.MaxBatchedTokens = 200, 5, 300 })
		var list []*seq
		for range 400 {
			switch r.IntN(4) {
			case 0:
				s := prompt(byte('a'+r.IntN(4)), fmt.Sprint(r.IntN(3)), 20+r.IntN(900), 1+r.IntN(40))
				list = append(list, s)
				b.submit(s)
			case 1:
				if len(list) > 0 {
					b.abort(list[r.IntN(len(list))])
				}
			default:
				b.step()
			}
			checkPool(t, b)
		}
		for _, s := range list {
			b.abort(s)
		}
		checkPool(t, b)
		if b.pool.used != 0 {
			t.Fatalf("seed %d: %d blocks in use by nobody", seed, b.pool.used)
		}
	}
}

func checkPool(t *testing.T, b *bench) {
	t.Helper()
	fresh := 0
	refs := map[hash]int{}
	for _, s := range b.running {
		fresh += s.fresh
		if s.fresh < 0 {
			t.Fatalf("a request holds %d fresh blocks", s.fresh)
		}
		for _, h := range s.held {
			refs[h]++
		}
	}
	for h, n := range refs {
		if x := b.pool.byHash[h]; x == nil || x.refs != n {
			t.Fatalf("block %x: want %d users, pool has %+v", h, n, x)
		}
	}
	if got, want := b.pool.used, len(refs)+fresh; got != want {
		t.Fatalf("%d blocks in use, want %d", got, want)
	}
	if got, want := b.pool.cached, len(b.pool.byHash)-len(refs); got != want {
		t.Fatalf("%d blocks cached, want %d", got, want)
	}
	if b.pool.used+b.pool.cached > b.pool.size {
		t.Fatalf("%d blocks in use and %d cached of %d", b.pool.used, b.pool.cached, b.pool.size)
	}
}

func TestConfigValidate(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Config){
		"engine": func(c *Config) { c.Engine = "x" },
		"models": func(c *Config) { c.Models = nil },
		"model":  func(c *Config) { c.Models = []string{""} },
		"rate":   func(c *Config) { c.PrefillRate = math.NaN() },
		"batch":  func(c *Config) { c.MaxBatchedTokens = 0 },
		"narrow": func(c *Config) { c.MaxBatchedTokens, c.MaxSeqs = 10, 20 },
		"seqs":   func(c *Config) { c.MaxSeqs = 0 },
		"delay":  func(c *Config) { c.TokenDelay = -1 },
		"blocks": func(c *Config) { c.CacheBlocks = 0 },
		"length": func(c *Config) { c.MaxModelLen = 0 },
		"answer": func(c *Config) { c.AnswerTokens = 0 },
		"stored": func(c *Config) { c.StoredMax = -1 },
		"ping":   func(c *Config) { c.PingInterval = -1 },
	} {
		c := Default()
		change(&c)
		if s, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
			_ = s.Close()
		}
	}
}
