package traffic

import (
	"math/rand/v2"
	"time"
)

// The workloads. Those of the llm-d article (code generation, reasoning,
// b2b-saas) have its published shapes; where a source gives a range and a mean
// only, the distribution is ours and is said here.

// Prefixes is an open loop over a corpus: a prefix drawn by popularity and, if
// Questions is set, one of the few questions that are asked of it, else a
// question of its own for every request.
type Prefixes struct {
	Count     int
	Exponent  float64 // Zipf; 0 = all equal
	Tokens    func(prefix int) int
	Questions int
	Question  int // tokens
	Output    int
}

// Draw returns the draw of such requests. corpus names it: two corpora of the
// same name share their prefixes.
func (p Prefixes) Draw(corpus uint64) Draw {
	zipf := NewZipf(p.Count, p.Exponent)
	return func(j *Job, n int, rnd *rand.Rand) {
		g := zipf.Draw(rnd)
		prefix := Mix(corpus, uint64(g))
		question := Mix(prefix, uint64(n)|1<<62)
		if p.Questions > 0 {
			question = Mix(prefix, uint64(rnd.IntN(p.Questions))|1<<61)
		}
		j.Add(Segment{prefix, p.Tokens(g)})
		j.Add(Segment{question, p.Question})
		j.Output = p.Output
		j.Answer = Mix(question, uint64(n))
	}
}

// Script returns the draw as a conversation of one question, for a closed loop.
func (p Prefixes) Script(corpus uint64) Script {
	draw := p.Draw(corpus)
	return func(id uint64, rnd *rand.Rand, opening []Segment, turns []Turn) ([]Segment, []Turn) {
		var j Job
		draw(&j, int(id>>2), rnd)
		return append(opening, j.Segs...), append(turns, Turn{Output: j.Output})
	}
}

// Flat is a length that is the same for all.
func Flat(tokens int) func(int) int { return func(int) int { return tokens } }

// SeedPrefixes are the 40 prefixes of 55,000 tokens, Zipf 1.1, each request
// with 1,500 new tokens and no answer to speak of.
func SeedPrefixes() Prefixes {
	return Prefixes{Count: 40, Exponent: 1.1, Tokens: Flat(55000), Question: 1500, Output: 1}
}

// B2B is b2b-saas: 150 prefixes of 6,000 tokens with 5 questions of 1,200
// each, answers of 1,000.
func B2B() Prefixes {
	return Prefixes{Count: 150, Tokens: Flat(6000), Questions: 5, Question: 1200, Output: 1000}
}

// RAG asks 200 tokens about one of 3,000 documents of 8,000 tokens, Zipf 0.9,
// answers of 250.
func RAG() Prefixes {
	return Prefixes{Count: 3000, Exponent: 0.9, Tokens: Flat(8000), Question: 200, Output: 250}
}

// ThinkPrefixes are 20 prefixes of 30,000 tokens, 500 new tokens, answers of
// 3,000.
func ThinkPrefixes() Prefixes {
	return Prefixes{Count: 20, Tokens: Flat(30000), Question: 500, Output: 3000}
}

// Unique is an open loop in which nothing is shared.
func Unique(input, output int) Draw {
	return func(j *Job, n int, rnd *rand.Rand) {
		id := Mix(rnd.Uint64(), uint64(n))
		j.Add(Segment{id, input})
		j.Output = output
	}
}

// CodeGeneration is a conversation with a system prompt of its own of 3k to
// 100k tokens (normal, mean 55k, deviation 25k), 2 to 20 turns (1 + exponential,
// 5.5 in the mean where the post says 6), 1,500 new tokens and an answer of 800
// each.
func CodeGeneration(id uint64, rnd *rand.Rand, opening []Segment, turns []Turn) ([]Segment, []Turn) {
	opening = append(opening, Segment{Mix(id, 1<<40), Normal(rnd, 55000, 25000, 3000, 100000)})
	for range min(20, 1+Around(rnd, 4.5, 19)) {
		turns = append(turns, Turn{Input: 1500, Output: 800})
	}
	return opening, turns
}

// Reasoning is one question of 1,000 tokens behind a shared system prompt of
// 250, answered with 8,000.
func Reasoning(id uint64, _ *rand.Rand, opening []Segment, turns []Turn) ([]Segment, []Turn) {
	return append(opening, Segment{shared("reasoning"), 250}), append(turns, Turn{Input: 1000, Output: 8000})
}

// Agentic is a long run of tool calls: a shared system prompt of 12,000
// tokens, a task of 4,000, then results of tools (exponential, mean 1,500) with
// short answers (exponential, mean 250) a second apart, up to 98,000 tokens.
func Agentic(id uint64, rnd *rand.Rand, opening []Segment, turns []Turn) ([]Segment, []Turn) {
	opening = append(opening, Segment{shared("agentic"), 12000}, Segment{Mix(id, 1<<40), 4000})
	length := 16000
	for {
		t := Turn{Input: Around(rnd, 1500, 12000), Output: Around(rnd, 250, 2000), Think: time.Second}
		if len(turns) > 0 && length+t.Input > 98000 {
			return opening, turns
		}
		turns = append(turns, t)
		length += t.Input + t.Output
	}
}

// Chat is a conversation behind a shared system prompt of 2,000 tokens: 1 to
// 16 turns (exponential, mean 6) of 300 tokens, answers of 300, and half a
// minute of thought.
func Chat(id uint64, rnd *rand.Rand, opening []Segment, turns []Turn) ([]Segment, []Turn) {
	return append(opening, Segment{shared("chat"), 2000}), chatTurns(rnd, turns)
}

// Tenants is Chat behind one of 30 system prompts of 3,000 to 20,000 tokens,
// Zipf 1.
func Tenants() Script {
	zipf := NewZipf(30, 1)
	return func(id uint64, rnd *rand.Rand, opening []Segment, turns []Turn) ([]Segment, []Turn) {
		g := zipf.Draw(rnd)
		length := 3000 + int(Mix(uint64(g), 11)%17001)
		return append(opening, Segment{Mix(shared("tenants"), uint64(g)), length}), chatTurns(rnd, turns)
	}
}

func chatTurns(rnd *rand.Rand, turns []Turn) []Turn {
	for range Around(rnd, 6, 16) {
		think := time.Duration(rnd.ExpFloat64() * 30e9)
		turns = append(turns, Turn{Input: Around(rnd, 300, 2000), Output: Around(rnd, 300, 2000), Think: think})
	}
	return turns
}

// shared is the ID of a prompt that all conversations of a kind begin with.
func shared(kind string) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(kind) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
