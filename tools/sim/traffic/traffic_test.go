package traffic

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

func TestKeysReachAsFarAsTheRealOnes(t *testing.T) {
	blocks := 448 + 8*(512-2) // 448 dense, then eight at each stride of 2 to 256
	for _, c := range []struct{ tokens, keys int }{
		{63, 0}, {64, 1}, {448 * 64, 448}, {449 * 64, 448}, {450 * 64, 449}, {464 * 64, 456}, {468 * 64, 457},
		{blocks*64 - 1, 511}, {blocks * 64, 512}, {blocks * 128, 512},
	} {
		j := &Job{}
		j.Reset()
		j.Add(Segment{1, c.tokens})
		if j.SetKeys(RealBlock); len(j.Keys) != c.keys {
			t.Errorf("%d tokens have %d keys, want %d", c.tokens, len(j.Keys), c.keys)
		}
	}
}

// Two prompts share exactly the keys that end within their shared segments.
func TestKeysFollowSegments(t *testing.T) {
	a, b := &Job{}, &Job{}
	for _, j := range []*Job{a, b} {
		j.Reset()
		j.Add(Segment{1, 1000})
	}
	a.Add(Segment{2, 500})
	b.Add(Segment{3, 500})
	a.SetKeys(RealBlock)
	b.SetKeys(RealBlock)
	if len(a.Keys) != 1500/64 || a.Bytes != 6000 {
		t.Fatalf("%d keys of %d bytes", len(a.Keys), a.Bytes)
	}
	shared := 0
	for shared < len(a.Keys) && a.Keys[shared] == b.Keys[shared] {
		shared++
	}
	if shared != 1000/64 {
		t.Errorf("%d keys shared, want %d", shared, 1000/64)
	}
	seen := map[key.Key]bool{}
	for _, k := range append(slices.Clone(a.Keys), b.Keys[shared:]...) {
		if seen[k] {
			t.Error("one key for two prefixes")
		}
		seen[k] = true
	}
}

func TestLargeBlocksLeaveTheRestWithoutKeys(t *testing.T) {
	j := &Job{}
	j.Reset()
	j.Add(Segment{1, 55000})
	j.Add(Segment{2, 1500})
	if j.SetKeys(11000); len(j.Keys) != 5 || j.Bytes != 1314 {
		t.Errorf("%d keys of %d bytes", len(j.Keys), j.Bytes)
	}
}

func TestZipfShareOfTheHottest(t *testing.T) {
	n, hot := 200000, 0
	p := NewPoisson(Constant(1), Never, 1, SeedPrefixes().Draw(1))
	j := &Job{}
	for range n {
		j.Reset()
		p.Pop(j)
		if j.Segs[0].ID == Mix(1, 0) {
			hot++
		}
	}
	if share := float64(hot) / float64(n); math.Abs(share-0.272) > 0.005 {
		t.Errorf("the hottest prefix has %.3f, want 0.272", share)
	}
}

func count(s Source, until Instant) (n int) {
	j := &Job{}
	for s.Next() < until {
		j.Reset()
		s.Pop(j)
		n++
	}
	return n
}

func TestPoissonRates(t *testing.T) {
	if n := count(NewPoisson(Constant(50), 1000*time.Second, 7, Unique(10, 1)), Never); n < 49000 || n > 51000 {
		t.Errorf("%d arrivals in 1000 s at 50/s", n)
	}
	if n := count(NewPoisson(Constant(0), time.Second, 7, Unique(10, 1)), Never); n != 0 {
		t.Errorf("%d arrivals at rate 0", n)
	}
	wave := NewPoisson(Wave(50, 0.4, 1.6, 20*time.Second), 40*time.Second, 7, Unique(10, 1))
	low, high := count(wave, 20*time.Second), count(wave, Never)
	if low < 300 || low > 500 || high < 1450 || high > 1750 {
		t.Errorf("wave: %d, then %d; want about 400 and 1600", low, high)
	}
}

// A closed loop says the same, whatever the time that answers take.
func TestSessionsDoNotDependOnAnswers(t *testing.T) {
	for name, script := range map[string]Script{
		"codegen": CodeGeneration, "agentic": Agentic, "chat": Chat, "tenants": Tenants(), "reasoning": Reasoning,
	} {
		said := func(answer time.Duration) map[int][]string {
			s := NewSessions(3, time.Second, 4000*time.Second, 5, script)
			out := map[int][]string{}
			j := &Job{}
			for s.Next() != Never {
				j.Reset()
				now := s.Next()
				s.Pop(j)
				sum := 0
				for _, g := range j.Segs {
					sum += g.Tokens
				}
				if sum != j.Prompt || j.Output < 1 {
					t.Fatalf("%s: prompt %d of segments %d, output %d", name, j.Prompt, sum, j.Output)
				}
				out[j.Session] = append(out[j.Session], fmt.Sprint(j.Segs, j.Output))
				s.Done(j, now+answer)
			}
			return out
		}
		fast, slow := said(time.Second), said(30*time.Second)
		for u := range 3 {
			n := min(len(fast[u]), len(slow[u]))
			if n < 10 || !slices.Equal(fast[u][:n], slow[u][:n]) {
				t.Errorf("%s: user %d says something else when answers are slow (%d turns)", name, u, n)
			}
		}
	}
}

// The next turn begins with the last turn's prompt and its answer.
func TestTurnsContinue(t *testing.T) {
	s := NewSessions(1, 0, Never, 5, CodeGeneration)
	a, b := &Job{}, &Job{}
	a.Reset()
	s.Pop(a)
	s.Done(a, 0)
	b.Reset()
	s.Pop(b)
	if n := len(a.Segs); !slices.Equal(a.Segs, b.Segs[:n]) || b.Segs[n] != (Segment{a.Answer, a.Output}) {
		t.Errorf("first turn %v answer %d, second %v", a.Segs, a.Answer, b.Segs)
	}
}

// Conversations of an open loop begin when they begin, and say what they say,
// whatever the time that answers take.
func TestConversationsAreAnOpenLoop(t *testing.T) {
	said := func(answer time.Duration) (begins []Instant, words map[string]bool) {
		c := NewConversations(Constant(0.5), 400*time.Second, 5, CodeGeneration)
		words = map[string]bool{}
		type busy struct {
			job Job
			end Instant
		}
		var answers []busy
		for {
			first := -1
			for i := range answers {
				if first < 0 || answers[i].end < answers[first].end {
					first = i
				}
			}
			next := c.Next()
			if first >= 0 && answers[first].end <= next {
				b := answers[first]
				answers = slices.Delete(answers, first, first+1)
				c.Done(&b.job, b.end)
				continue
			}
			if next == Never {
				return begins, words
			}
			j := Job{}
			j.Reset()
			c.Pop(&j)
			words[fmt.Sprint(j.Segs, j.Output)] = true
			if len(j.Segs) == 2 { // system prompt and first question
				begins = append(begins, next)
			}
			answers = append(answers, busy{j, next + answer})
		}
	}
	fast, manyWords := said(time.Second)
	slow, words := said(40 * time.Second)
	if len(fast) < 150 || len(fast) > 250 || !slices.Equal(fast, slow) {
		t.Errorf("%d conversations with fast answers, %d with slow ones", len(fast), len(slow))
	}
	if len(words) >= len(manyWords) {
		t.Errorf("%d turns with slow answers, %d with fast ones", len(words), len(manyWords))
	}
	for w := range words {
		if !manyWords[w] {
			t.Fatal("slow answers make a conversation say something else")
		}
	}
}

// A closed loop over a corpus asks the same questions as the open one.
func TestScriptAsksTheCorpus(t *testing.T) {
	questions := func(s Source) map[string]int {
		out := map[string]int{}
		j := &Job{}
		for range 3000 {
			j.Reset()
			now := s.Next()
			s.Pop(j)
			out[fmt.Sprint(j.Segs)]++
			if j.Output != 1000 || j.Prompt != 7200 {
				t.Fatalf("prompt %d, output %d", j.Prompt, j.Output)
			}
			s.Done(j, now+time.Second)
		}
		return out
	}
	open := questions(NewPoisson(Constant(10), Never, 1, B2B().Draw(1)))
	closed := questions(NewSessions(20, time.Second, Never, 1, B2B().Script(1)))
	if len(open) < 650 || len(closed) < 650 { // of 750
		t.Errorf("%d questions in the open loop, %d in the closed one", len(open), len(closed))
	}
	for q := range closed {
		if _, there := open[q]; there {
			return
		}
	}
	t.Error("they share no question")
}

func TestMergedKeepsOrderAndReturnsToItsPart(t *testing.T) {
	m := &Merged{Parts: []Source{
		NewPoisson(Constant(5), 100*time.Second, 1, Unique(10, 1)),
		NewSessions(3, time.Second, 100*time.Second, 1, Chat),
	}}
	last, classes := Instant(0), [2]int{}
	j := &Job{}
	for m.Next() != Never {
		now := m.Next()
		if now < last {
			t.Fatal("arrivals out of order")
		}
		last = now
		j.Reset()
		m.Pop(j)
		classes[j.Class]++
		m.Done(j, now+time.Second)
	}
	if classes[0] < 300 || classes[1] < 3 {
		t.Errorf("arrivals by part: %v", classes)
	}
}
