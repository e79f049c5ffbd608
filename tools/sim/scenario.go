// Package sim is the policy lab: it runs a simulated fleet of inference
// engines under generated traffic, with the agent's own decision code choosing
// the backends, and draws what came of it.
//
// A run is a function of scenario, policy and seed; runs share nothing and are
// spread over the processors by Sweep.
package sim

import (
	"math/rand/v2"
	"time"

	"github.com/tautline/tautline/tools/sim/engine"
	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/tools/sim/traffic"
)

// Instant is a time since the start of the simulation.
type Instant = traffic.Instant

// Backend is one endpoint of the simulated fleet.
type Backend struct {
	Batching *engine.Batching // the backend's own copy; nil = the toy
	Capacity int64            // tokens its prefix cache holds
}

// start returns a fresh engine.
func (b *Backend) start() engine.Model {
	if b.Batching == nil {
		return engine.NewToy(seedRate, seedSlots)
	}
	return engine.NewBatched(*b.Batching)
}

// Outage takes a backend away for some time; what it held is lost.
type Outage struct {
	Slot     int
	From, To Instant
}

// Scenario is a fleet and its traffic.
type Scenario struct {
	Name     string
	Load     float64 // the load point: requests/s, users or a factor; see LoadUnit
	LoadUnit string
	Backends []Backend
	Traffic  func(seed uint64) traffic.Source

	Until  Instant // arrivals end; throughput is counted up to here
	Warmup Instant // earlier arrivals are served but not counted
	Drain  Instant // what is not done this long after Until counts as unfinished; 0 = wait for all

	BlockTokens int     // prompt tokens per block of the router's keys; traffic.RealBlock is the agent's own
	Rate        float64 // prefill tokens/s of a healthy backend
	Memory      float64 // size of the router's memory over the true cache; 0 = 1
	Perfect     bool    // the toy: the router's memory is exactly the cache
	Polls       time.Duration
	TTL         time.Duration // of what the router remembers; 0 = the agent's default
	Unexplored  bool          // the agent's policies do not explore; on the toy they never do
	Unstreamed  bool          // answers come at once: the router sees no first token

	Agents  int           // routing agents, each with memory and books of its own; 0 = 1
	Telling time.Duration // agents tell each other decisions this late; 0 = never

	Outages []Outage
	Series  time.Duration // sample the backends' load this often; 0 = not at all
}

// Shorten ends the arrivals earlier; the warm-up stays the same share of them.
// It has no effect beyond the scenario's own length.
func (sc *Scenario) Shorten(until time.Duration) {
	if until >= sc.Until {
		return
	}
	sc.Warmup = Instant(float64(sc.Warmup) * float64(until) / float64(sc.Until))
	sc.Until = until
	make := sc.Traffic
	sc.Traffic = func(seed uint64) traffic.Source { return &ended{make(seed), until} }
}

// ended cuts a source off.
type ended struct {
	traffic.Source
	until Instant
}

func (e *ended) Next() Instant {
	if t := e.Source.Next(); t < e.until {
		return t
	}
	return traffic.Never
}

// setup makes what a policy may know.
func (sc *Scenario) setup(rnd *rand.Rand) policies.Setup {
	memory := sc.Memory
	if memory == 0 {
		memory = 1
	}
	s := policies.Setup{
		Backends:    len(sc.Backends),
		Memory:      memory,
		BlockTokens: sc.BlockTokens,
		Rate:        sc.Rate,
		Perfect:     sc.Perfect,
		Polls:       sc.Polls,
		TTL:         sc.TTL,
		Unexplored:  sc.Unexplored,
		Rand:        rnd,
	}
	for _, b := range sc.Backends {
		s.Capacity = append(s.Capacity, b.Capacity)
	}
	return s
}

// Result is what one run gave. Times are seconds.
type Result struct {
	Scenario string  `json:"scenario"`
	Load     float64 `json:"load"`
	Policy   string  `json:"policy"`
	Seed     uint64  `json:"seed"`

	Arrived    int `json:"arrived"`
	Completed  int `json:"completed"`
	Unfinished int `json:"unfinished"`
	Refused    int `json:"refused"`   // no backend could take it
	Retried    int `json:"retried"`   // died with a backend and were sent again
	Preempted  int `json:"preempted"` // how often requests that completed lost their memory

	// Of all that arrived and were not refused. What has no first token at the end
	// counts with the time that it has waited.
	Mean float64 `json:"ttft_mean"`
	P50  float64 `json:"ttft_p50"`
	P90  float64 `json:"ttft_p90"`
	P99  float64 `json:"ttft_p99"`

	Throughput float64 `json:"throughput"`  // answers ended per second between Warmup and Until
	HitTokens  float64 `json:"hit_tokens"`  // share of prompt tokens found in the engines' caches
	HitJobs    float64 `json:"hit_jobs"`    // share of requests that found any
	Believed   float64 `json:"believed"`    // prompt tokens the router expected cached over those that were
	TPOT       float64 `json:"tpot_mean"`   // seconds per output token after the first
	Spread     float64 `json:"load_spread"` // busiest backend's share of requests x number of backends

	Outcomes map[string]int `json:"outcomes,omitempty"`
	Loads    [][]float32    `json:"loads,omitempty"` // per sample: requests in each backend
	Every    float64        `json:"loads_every,omitempty"`
	Jobs     int            `json:"-"` // all jobs simulated, the uncounted too
}
