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
	Loads   []float64 // worth looking at, rising
	Knee    float64   // highest load at which the fleet still keeps up, by eye
	HoldOut bool      // not used when policies were tuned
	build   func(p Preset, load float64) Scenario
}

// At returns the scenario at a load.
func (p Preset) At(load float64) Scenario {
	sc := p.build(p, load)
	sc.Name, sc.Load, sc.LoadUnit = p.Name, load, p.Unit
	return sc
}

// Presets returns all presets, the seed's first.
func Presets() []Preset {
	qwen := engine.Qwen32B()
	return []Preset{
		{Name: "seed", Unit: "req/s", Loads: []float64{2, 4, 6, 10, 20, 40, 60, 80}, Knee: 60,
			About: "the article's toy: 10 queues of 20,480 tokens/s, 4 prefix slots each, 40 prefixes of 55,000 tokens, Zipf 1.1",
			build: seedScenario},
		{Name: "codegen", Unit: "conversations", Loads: []float64{20, 30, 40}, Knee: 30,
			About: "code generation: long private system prompts, few turns, closed loop",
			build: closed(qwen, traffic.CodeGeneration)},
		{Name: "b2b", Unit: "req/s", Loads: []float64{16, 20, 22, 24}, Knee: 22,
			About: "b2b-saas: 150 prefixes x 5 questions",
			build: open(qwen, func() traffic.Draw { return traffic.B2B().Draw(1) }, traffic.Constant)},
		{Name: "reasoning", Unit: "conversations", Loads: []float64{200, 275, 300, 400}, Knee: 275,
			About: "reasoning: short prompts, answers of 8,000 tokens, closed loop",
			build: closed(qwen, traffic.Reasoning)},
		{Name: "toy", Unit: "req/s", Loads: []float64{40, 60, 80}, Knee: 60,
			About: "the article's traffic on a batching engine",
			build: open(qwen, func() traffic.Draw { return traffic.SeedPrefixes().Draw(1) }, traffic.Constant)},
		{Name: "agentic", Unit: "sessions", Loads: []float64{20, 40, 60}, Knee: 40,
			About: "agents: tool calls over a growing context of up to 98,000 tokens, closed loop",
			build: closed(qwen, traffic.Agentic)},
		{Name: "hetero", Unit: "req/s", Loads: []float64{16, 20}, Knee: 16,
			About: "b2b with two backends of half the speed",
			build: hetero},
		{Name: "mixed", Unit: "factor", Loads: []float64{0.5, 0.7, 0.85}, Knee: 0.7,
			About: "factor x (20 codegen + 12/s b2b + 100 reasoning)",
			build: mixed},
		{Name: "chat", Unit: "users", Loads: []float64{600, 1000, 1400}, Knee: 1000,
			About: "chats behind one short system prompt, with time to think",
			build: closed(qwen, traffic.Chat)},
		{Name: "rag", Unit: "req/s", Loads: []float64{15, 20, 25}, Knee: 20,
			About: "one question each about 3,000 documents of 8,000 tokens, Zipf 0.9",
			build: open(qwen, func() traffic.Draw { return traffic.RAG().Draw(1) }, traffic.Constant)},
		{Name: "tenants", Unit: "users", Loads: []float64{300, 500, 700}, Knee: 500, HoldOut: true,
			About: "chats behind 30 system prompts of 3,000 to 20,000 tokens, Zipf 1",
			build: closed(qwen, traffic.Tenants())},
		{Name: "summar", Unit: "req/s", Loads: []float64{1.5, 2, 2.6}, Knee: 2, HoldOut: true,
			About: "summaries: 20,000 tokens in, nothing shared, 1,500 out",
			build: open(qwen, func() traffic.Draw { return traffic.Unique(20000, 1500) }, traffic.Constant)},
		{Name: "bursty", Unit: "req/s", Loads: []float64{14, 18, 22}, Knee: 18, HoldOut: true,
			About: "b2b that alternates between 0.4 and 1.6 times its rate every 20 s",
			build: open(qwen, func() traffic.Draw { return traffic.B2B().Draw(1) }, burst)},
		{Name: "thinkpre", Unit: "req/s", Loads: []float64{1.5, 2, 2.5}, Knee: 2, HoldOut: true,
			About: "20 prefixes of 30,000 tokens, answers of 3,000",
			build: open(qwen, func() traffic.Draw { return traffic.ThinkPrefixes().Draw(1) }, traffic.Constant)},
	}
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

func seedScenario(_ Preset, load float64) Scenario {
	sc := Scenario{
		Until: 600 * time.Second, BlockTokens: seedPrefix / 5, Rate: seedRate, Perfect: true,
		Traffic: func(seed uint64) traffic.Source {
			return traffic.NewPoisson(traffic.Constant(load), 600*time.Second, seed, traffic.SeedPrefixes().Draw(1))
		},
	}
	for range 10 {
		sc.Backends = append(sc.Backends, Backend{
			Engine:   func() engine.Model { return engine.NewToy(seedRate, seedSlots) },
			Capacity: seedSlots * seedPrefix,
		})
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
		Rate:  float64(engines[0].Budget) * 1e9 / (engines[0].Fixed + engines[0].PerPrefill*float64(engines[0].Budget)),
		Polls: time.Second,
	}
	for _, b := range engines {
		sc.Backends = append(sc.Backends, Backend{
			Engine:   func() engine.Model { return engine.NewBatched(b) },
			Capacity: int64(b.Capacity),
		})
	}
	return sc
}

func ten(b engine.Batching) []engine.Batching {
	return slices.Repeat([]engine.Batching{b}, 10)
}

func closed(b engine.Batching, script traffic.Script) func(Preset, float64) Scenario {
	return func(_ Preset, load float64) Scenario {
		sc := batched(ten(b)...)
		sc.Traffic = func(seed uint64) traffic.Source {
			return traffic.NewSessions(int(load), ramp, length, seed, script)
		}
		return sc
	}
}

func open(b engine.Batching, draw func() traffic.Draw, rate func(float64) traffic.Rate) func(Preset, float64) Scenario {
	return func(_ Preset, load float64) Scenario {
		sc := batched(ten(b)...)
		sc.Traffic = func(seed uint64) traffic.Source {
			return traffic.NewPoisson(rate(load), length, seed, draw())
		}
		return sc
	}
}

func burst(load float64) traffic.Rate { return traffic.Wave(load, 0.4, 1.6, 20*time.Second) }

func hetero(_ Preset, load float64) Scenario {
	engines := ten(engine.Qwen32B())
	engines[8], engines[9] = engines[8].Slower(2), engines[9].Slower(2)
	sc := batched(engines...)
	sc.Traffic = func(seed uint64) traffic.Source {
		return traffic.NewPoisson(traffic.Constant(load), length, seed, traffic.B2B().Draw(1))
	}
	return sc
}

func mixed(_ Preset, load float64) Scenario {
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
