// Package demo is the short mixed load of `tautline demo`: conversations that
// share system prompts, one-off prompts, tiny prompts, and bursts behind one
// hot prompt that saturate the server which holds it.
package demo

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/tautline/tautline/tools/bench/load"
)

// The shape of the load, in bytes of text; about 4 bytes make a token.
const (
	systemPrompts = 6
	systemBytes   = 16 << 10
	hotBytes      = 40 << 10
	hotTailBytes  = 8 << 10
	turnBytes     = 600
	maxTurns      = 6
	answerTokens  = 24
)

// Workload makes the requests of a number of clients. It is safe for
// concurrent use and makes the same conversations for the same seed.
type Workload struct {
	model  string
	system []string
	hot    string

	mu    sync.Mutex
	chats map[int]*chat
	seed  uint64
}

// chat is where one client's conversation stands.
type chat struct {
	rng    *rand.Rand
	system string
	turns  []message
	left   int
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// New prepares a workload for the model of that name.
func New(model string, seed uint64) *Workload {
	w := &Workload{model: model, chats: map[int]*chat{}, seed: seed}
	rng := rand.New(rand.NewPCG(seed, 1))
	for range systemPrompts {
		w.system = append(w.system, text(rng, systemBytes))
	}
	w.hot = text(rng, hotBytes)
	return w
}

// Next returns the next request of a client. Nine in ten are turns of its
// conversation; the rest are prompts nobody sent before, or too short for a key.
func (w *Workload) Next(client int) load.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.chats[client]
	if c == nil {
		c = &chat{rng: rand.New(rand.NewPCG(w.seed, uint64(client)+2))}
		w.chats[client] = c
	}
	switch p := c.rng.Float64(); {
	case p < 0.05:
		return w.request("short", []message{{"user", "Hi!"}})
	case p < 0.10:
		return w.request("new", []message{{"user", text(c.rng, 4<<10)}})
	}
	if c.left == 0 {
		// Half of all conversations use the first system prompt: traffic is skewed.
		c.system = w.system[max(0, c.rng.IntN(2*len(w.system))-len(w.system))]
		c.turns, c.left = nil, 1+c.rng.IntN(maxTurns)
	}
	c.left--
	if len(c.turns) > 0 {
		c.turns = append(c.turns, message{"assistant", text(c.rng, 200)})
	}
	c.turns = append(c.turns, message{"user", text(c.rng, turnBytes)})
	return w.request("chat", append([]message{{"system", c.system}}, c.turns...))
}

// Burst returns n requests that share the hot prompt and differ in their tail.
func (w *Workload) Burst(n, round int) []load.Request {
	rng := rand.New(rand.NewPCG(w.seed, uint64(1000+round)))
	out := make([]load.Request, n)
	for i := range out {
		out[i] = w.request("hot", []message{{"system", w.hot}, {"user", text(rng, hotTailBytes)}})
	}
	return out
}

func (w *Workload) request(kind string, m []message) load.Request {
	body, err := json.Marshal(map[string]any{
		"model": w.model, "messages": m, "stream": true, "max_tokens": answerTokens,
		"stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		panic(fmt.Sprintf("strings always marshal: %v", err))
	}
	return load.Request{Path: "/v1/chat/completions", Body: body, Kind: kind}
}

var words = strings.Fields("tau hitch load rope knot slide hold token block prefix cache queue server route agent kernel socket stream chunk prompt")

func text(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%s %d ", words[rng.IntN(len(words))], rng.IntN(10000))
	}
	return b.String()[:n]
}
