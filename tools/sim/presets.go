package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tautline/tautline/tools/sim/engine"
	"github.com/tautline/tautline/tools/sim/traffic"
)

// Preset is a named scenario, open only in its load.
type Preset struct {
	Name    string
	About   string
	Unit    string    // of the load
	Whole   bool      // a load is a whole number
	Loads   []float64 // worth looking at, rising
	Knee    float64   // highest load at which the fleet still keeps up, by eye
	HoldOut bool      // not used when policies were tuned
	Aside   bool      // not part of the study
	build   func(load float64) Scenario
	twist   Conditions // what sets it apart from a preset of the study
}

// At returns the scenario at a load.
func (p Preset) At(load float64) Scenario {
	sc := p.build(load)
	sc.Name, sc.Load, sc.LoadUnit = p.Name, load, p.Unit
	if err := p.twist.apply(&sc); err != nil {
		panic(err) // the preset is at fault, not the user
	}
	return sc
}

// Presets returns all presets: the seed's, those of the study, those aside.
func Presets() []Preset {
	return slices.Concat([]Preset{{
		Name: "seed", Unit: "req/s", Loads: []float64{2, 4, 6, 10, 20, 40, 60, 80}, Knee: 60, Aside: true,
		About: "the article's toy: 10 queues of 20,480 tokens/s, 4 prefix slots each, 40 prefixes of 55,000 tokens, Zipf 1.1",
		build: seedScenario,
	}}, studied(), aside())
}

// studied are the workloads over which policies are compared.
func studied() []Preset {
	b2b := func() traffic.Draw { return traffic.B2B().Draw(1) }
	return []Preset{
		{Name: "codegen", Unit: "conversations", Whole: true, Loads: []float64{20, 30, 40}, Knee: 30,
			About: "code generation: long private system prompts, few turns, closed loop",
			build: closed(traffic.CodeGeneration)},
		{Name: "b2b", Unit: "req/s", Loads: []float64{16, 20, 22, 24}, Knee: 22,
			About: "b2b-saas: 150 prefixes x 5 questions",
			build: open(b2b, traffic.Constant)},
		{Name: "reasoning", Unit: "conversations", Whole: true, Loads: []float64{200, 275, 300, 400}, Knee: 275,
			About: "reasoning: short prompts, answers of 8,000 tokens, closed loop",
			build: closed(traffic.Reasoning)},
		{Name: "toy", Unit: "req/s", Loads: []float64{40, 60, 80}, Knee: 60,
			About: "the article's traffic on a batching engine",
			build: open(func() traffic.Draw { return traffic.SeedPrefixes().Draw(1) }, traffic.Constant)},
		{Name: "agentic", Unit: "sessions", Whole: true, Loads: []float64{20, 40, 60}, Knee: 40,
			About: "agents: tool calls over a growing context of up to 98,000 tokens, closed loop",
			build: closed(traffic.Agentic)},
		{Name: "hetero", Unit: "req/s", Loads: []float64{16, 20}, Knee: 16,
			About: "b2b with two backends of half the speed",
			build: hetero},
		{Name: "mixed", Unit: "factor", Loads: []float64{0.5, 0.7, 0.85}, Knee: 0.7,
			About: "factor x (20 codegen + 12/s b2b + 100 reasoning)",
			build: mixed},
		{Name: "chat", Unit: "users", Whole: true, Loads: []float64{600, 1000, 1400}, Knee: 1000,
			About: "chats behind one short system prompt, with time to think",
			build: closed(traffic.Chat)},
		{Name: "rag", Unit: "req/s", Loads: []float64{15, 20, 25}, Knee: 20,
			About: "one question each about 3,000 documents of 8,000 tokens, Zipf 0.9",
			build: open(func() traffic.Draw { return traffic.RAG().Draw(1) }, traffic.Constant)},
		{Name: "tenants", Unit: "users", Whole: true, Loads: []float64{300, 500, 700}, Knee: 500, HoldOut: true,
			About: "chats behind 30 system prompts of 3,000 to 20,000 tokens, Zipf 1",
			build: closed(traffic.Tenants())},
		{Name: "summar", Unit: "req/s", Loads: []float64{1.5, 2, 2.6}, Knee: 2, HoldOut: true,
			About: "summaries: 20,000 tokens in, nothing shared, 1,500 out",
			build: open(func() traffic.Draw { return traffic.Unique(20000, 1500) }, traffic.Constant)},
		{Name: "bursty", Unit: "req/s", Loads: []float64{14, 18, 22}, Knee: 18, HoldOut: true,
			About: "b2b that alternates between 0.4 and 1.6 times its rate every 20 s",
			build: open(b2b, burst)},
		{Name: "thinkpre", Unit: "req/s", Loads: []float64{1.5, 2, 2.5}, Knee: 2, HoldOut: true,
			About: "20 prefixes of 30,000 tokens, answers of 3,000",
			build: open(func() traffic.Draw { return traffic.ThinkPrefixes().Draw(1) }, traffic.Constant)},
	}
}

// aside are what the study leaves out: the other loop of llm-d's workloads, and
// one condition each that the toy does not have.
func aside() []Preset {
	b2b := open(func() traffic.Draw { return traffic.B2B().Draw(1) }, traffic.Constant)
	toy := open(func() traffic.Draw { return traffic.SeedPrefixes().Draw(1) }, traffic.Constant)
	seconds := func(n int) Instant { return Instant(n) * time.Second }
	presets := []Preset{
		{Name: "codegen-open", Unit: "conversations/s", Loads: []float64{0.2, 0.25, 0.3}, Knee: 0.25,
			About: "codegen with conversations that begin whether others ended or not",
			build: openSessions(traffic.CodeGeneration)},
		{Name: "reasoning-open", Unit: "req/s", Loads: []float64{1, 1.4, 1.8}, Knee: 1.4,
			About: "reasoning in an open loop",
			build: openSessions(traffic.Reasoning)},
		{Name: "b2b-closed", Unit: "clients", Whole: true, Loads: []float64{600, 900, 1200}, Knee: 900,
			About: "b2b with clients that each wait for their answer",
			build: closed(traffic.B2B().Script(1))},
		{Name: "chunks", Unit: "req/s", Loads: []float64{40, 50, 60}, Knee: 40, twist: Conditions{BatchTokens: 1024},
			About: "toy with prefill in chunks of 1,024 tokens instead of 8,192",
			build: toy},
		{Name: "slots", Unit: "req/s", Loads: []float64{10, 12, 16}, Knee: 12, twist: Conditions{DecodeSlots: 48},
			About: "b2b with 48 decode slots per engine instead of 256: requests wait there",
			build: b2b},
		{Name: "tight", Unit: "req/s", Loads: []float64{10, 13, 16}, Knee: 13, twist: Conditions{KVTokens: 196608},
			About: "b2b with three quarters of the KV cache",
			build: b2b},
		{Name: "stale", Unit: "req/s", Loads: []float64{12, 16, 20}, Knee: 16,
			About: "b2b where the router's memory is wrong: four times the cache, a TTL of 60 s, engines that restart",
			twist: Conditions{Memory: 4, TTL: 60 * time.Second, Outages: []Outage{
				{2, seconds(120), seconds(121)}, {5, seconds(180), seconds(181)}, {7, seconds(240), seconds(241)}, {0, seconds(300), seconds(301)}}},
			build: b2b},
		{Name: "lagging", Unit: "req/s", Loads: []float64{16, 20, 22}, Knee: 20, twist: Conditions{Polls: 15 * time.Second},
			About: "b2b polled every 15 s",
			build: b2b},
		{Name: "strangers", Unit: "req/s", Loads: []float64{8, 12, 16}, Knee: 8, twist: Conditions{Agents: 4},
			About: "b2b through four agents that know nothing of each other",
			build: b2b},
		{Name: "peers", Unit: "req/s", Loads: []float64{16, 20, 22}, Knee: 20, twist: Conditions{Agents: 4, Telling: 200 * time.Millisecond},
			About: "b2b through four agents that tell each other their decisions 0.2 s late",
			build: b2b},
		{Name: "dying", Unit: "req/s", Loads: []float64{12, 16, 20}, Knee: 16,
			About: "b2b where one backend is away for two minutes and another dies for good",
			twist: Conditions{Outages: []Outage{{3, seconds(150), seconds(270)}, {6, seconds(200), traffic.Never}}},
			build: b2b},
	}
	for i := range presets {
		presets[i].Aside = true
	}
	return presets
}

// FindPreset returns the preset of that name; the error lists them all.
func FindPreset(name string) (Preset, error) {
	var names []string
	for _, p := range Presets() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return Preset{}, fmt.Errorf("preset %q: not one of %v", name, names)
}

// The toy's numbers. A block is a fifth of a prefix: a prefix is a chain of
// five keys and the 1,500 new tokens have none.
const (
	seedRate   = 20480
	seedSlots  = 4
	seedPrefix = 55000
)

func seedScenario(load float64) Scenario {
	sc := Scenario{
		Until: 600 * time.Second, BlockTokens: seedPrefix / 5, Rate: seedRate, Perfect: true,
		Traffic: func(seed uint64) traffic.Source {
			return traffic.NewPoisson(traffic.Constant(load), 600*time.Second, seed, traffic.SeedPrefixes().Draw(1))
		},
	}
	for range 10 {
		sc.Backends = append(sc.Backends, Backend{Capacity: seedSlots * seedPrefix})
	}
	return sc
}

// The frame of the other presets: 400 s of arrivals, of which the first 100 fill
// the caches and are not counted; what is not done half an hour after the end is
// unfinished.
const (
	length = 400 * time.Second
	warmup = 100 * time.Second
	drain  = 1800 * time.Second
	ramp   = 20 * time.Second
)

func batched(engines ...engine.Batching) Scenario {
	sc := Scenario{
		Until: length, Warmup: warmup, Drain: drain, BlockTokens: 4 * traffic.RealBlock,
		Rate: engines[0].Rate(), Polls: time.Second,
	}
	for _, b := range engines {
		sc.Backends = append(sc.Backends, Backend{Batching: &b, Capacity: int64(b.Capacity)})
	}
	return sc
}

func ten(b engine.Batching) []engine.Batching {
	return slices.Repeat([]engine.Batching{b}, 10)
}

func closed(script traffic.Script) func(float64) Scenario {
	return func(load float64) Scenario {
		sc := batched(ten(engine.Qwen32B())...)
		sc.Traffic = func(seed uint64) traffic.Source {
			return traffic.NewSessions(int(load), ramp, length, seed, script)
		}
		return sc
	}
}

func openSessions(script traffic.Script) func(float64) Scenario {
	return func(load float64) Scenario {
		sc := batched(ten(engine.Qwen32B())...)
		sc.Traffic = func(seed uint64) traffic.Source {
			return traffic.NewConversations(traffic.Constant(load), length, seed, script)
		}
		return sc
	}
}

func open(draw func() traffic.Draw, rate func(float64) traffic.Rate) func(float64) Scenario {
	return func(load float64) Scenario {
		sc := batched(ten(engine.Qwen32B())...)
		sc.Traffic = func(seed uint64) traffic.Source {
			return traffic.NewPoisson(rate(load), length, seed, draw())
		}
		return sc
	}
}

func burst(load float64) traffic.Rate { return traffic.Wave(load, 0.4, 1.6, 20*time.Second) }

func hetero(load float64) Scenario {
	engines := ten(engine.Qwen32B())
	engines[8], engines[9] = engines[8].Slower(2), engines[9].Slower(2)
	sc := batched(engines...)
	sc.Traffic = func(seed uint64) traffic.Source {
		return traffic.NewPoisson(traffic.Constant(load), length, seed, traffic.B2B().Draw(1))
	}
	return sc
}

func mixed(load float64) Scenario {
	sc := batched(ten(engine.Qwen32B())...)
	sc.Traffic = func(seed uint64) traffic.Source {
		return &traffic.Merged{Parts: []traffic.Source{
			traffic.NewSessions(int(20*load+.5), ramp, length, seed, traffic.CodeGeneration),
			traffic.NewPoisson(traffic.Constant(12*load), length, seed, traffic.B2B().Draw(1)),
			traffic.NewSessions(int(100*load+.5), ramp, length, seed+1<<32, traffic.Reasoning),
		}}
	}
	return sc
}
