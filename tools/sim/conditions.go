package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/index"
)

// Conditions are what a user can change about every preset. Zero values leave
// the preset's own.
type Conditions struct {
	Duration time.Duration // of the arrivals, no longer than the preset's
	Exact    bool          // real 256-byte blocks instead of coarser ones; no effect on the seed's toy

	// The engines. Not for the seed's toy.
	BatchTokens int      // max_num_batched_tokens: the size of a chunk of prefill
	DecodeSlots int      // max_num_seqs
	KVTokens    int      // KV cache
	Outages     []Outage // backends that die, and come back empty; see ParseOutage

	// What the router sees of them.
	Memory     float64       // router's memory over the engines' cache
	TTL        time.Duration // of what the router remembers; own policies only
	Unexplored bool          // own policies do not explore
	Polls      time.Duration // interval, a millisecond at least
	Unstreamed bool          // answers are not streamed: no first token is seen
	Agents     int           // routing agents, each with a memory of its own; 1,000 at most
	Telling    time.Duration // agents tell each other decisions this late; 0 = never
}

func (c *Conditions) valid() error {
	if c.Agents < 0 || c.Telling < 0 || c.Duration < 0 || !(c.Memory >= 0 && c.Memory <= 1e6) || c.Polls < 0 || c.TTL < 0 {
		return errors.New("agents, telling, duration, memory, polls and TTL must not be negative")
	}
	if c.Agents > 1000 {
		return fmt.Errorf("agents %d: at most 1,000", c.Agents)
	}
	if c.Polls > 0 && c.Polls < time.Millisecond {
		return fmt.Errorf("polls %v: at most a thousand per second", c.Polls)
	}
	if c.TTL > time.Duration(index.MaxTTLSeconds)*time.Second {
		return fmt.Errorf("TTL %v: at most %d s", c.TTL, index.MaxTTLSeconds)
	}
	if c.BatchTokens < 0 || c.DecodeSlots < 0 || c.KVTokens < 0 {
		return errors.New("batch tokens, decode slots and KV tokens must not be negative")
	}
	if c.BatchTokens > 0 && c.DecodeSlots > c.BatchTokens {
		return fmt.Errorf("decode slots %d: each needs one of the %d batch tokens", c.DecodeSlots, c.BatchTokens)
	}
	return nil
}

// plain says that the preset is run as it is.
func (c Conditions) plain() bool {
	if c.Memory == 1 {
		c.Memory = 0
	}
	if c.Agents == 1 {
		c.Agents = 0
	}
	c.Exact = false // the toy's blocks are its own
	return c.String() == Conditions{}.String()
}

// String is the same for the same conditions only.
func (c Conditions) String() string {
	type bare Conditions // or it would print itself
	return fmt.Sprintf("%+v", bare(c))
}

// apply changes the scenario. The error names what does not fit it.
func (c *Conditions) apply(sc *Scenario) error {
	if c.Memory > 0 {
		sc.Memory = c.Memory
	}
	if c.Agents > 0 {
		sc.Agents = c.Agents
	}
	if c.Telling > 0 {
		if sc.Agents < 2 {
			return fmt.Errorf("telling %v: %s has one agent, and nobody to tell", c.Telling, sc.Name)
		}
		sc.Telling = c.Telling
	}
	if c.Polls > 0 {
		sc.Polls = c.Polls
	}
	if c.TTL > 0 {
		sc.TTL = c.TTL
	}
	sc.Unstreamed = sc.Unstreamed || c.Unstreamed
	sc.Unexplored = sc.Unexplored || c.Unexplored
	if c.Exact && !sc.Perfect {
		sc.BlockTokens = traffic.RealBlock
	}
	if c.Duration > sc.Until {
		return fmt.Errorf("duration %v: the arrivals of %s last %v and can only be cut short", c.Duration, sc.Name, sc.Until)
	}
	if c.Duration > 0 {
		sc.Shorten(c.Duration)
	}
	for _, o := range c.Outages {
		if o.Slot >= len(sc.Backends) {
			return fmt.Errorf("outage of backend %d: %s has backends 0 to %d", o.Slot, sc.Name, len(sc.Backends)-1)
		}
	}
	sc.Outages = slices.Concat(sc.Outages, c.Outages)
	if sc.Perfect && (c.BatchTokens > 0 || c.DecodeSlots > 0 || c.KVTokens > 0 || len(c.Outages) > 0 || c.TTL > 0 || c.Polls > 0) {
		return fmt.Errorf("%s is a toy: it has no batches, slots, KV, polls, TTL or outages; the preset toy has the same traffic on real engines", sc.Name)
	}
	for i := range sc.Backends {
		b := &sc.Backends[i]
		if c.BatchTokens > 0 {
			b.Batching.Budget = c.BatchTokens
		}
		if c.DecodeSlots > 0 {
			b.Batching.MaxRunning = c.DecodeSlots
		}
		if c.KVTokens > 0 {
			b.Batching.Capacity, b.Capacity = c.KVTokens, int64(c.KVTokens)
		}
	}
	if c.BatchTokens > 0 {
		sc.Rate = sc.Backends[0].Batching.Rate()
	}
	return nil
}

// ParseOutage reads "backend:from:to", the times as durations since the start,
// as in 3:120s:180s. Without to the backend does not come back.
func ParseOutage(s string) (Outage, error) {
	bad := func(why string) (Outage, error) {
		return Outage{}, fmt.Errorf("outage %q: %s; want BACKEND:FROM or BACKEND:FROM:TO, as in 3:120s:180s", s, why)
	}
	parts := strings.Split(s, ":")
	if len(parts) != 2 && len(parts) != 3 {
		return bad("not two or three parts")
	}
	slot, err := strconv.Atoi(parts[0])
	if err != nil || slot < 0 {
		return bad("not the number of a backend: " + parts[0])
	}
	o := Outage{Slot: slot, To: traffic.Never}
	for i, t := range []*Instant{&o.From, &o.To} {
		if i+1 == len(parts) {
			break
		}
		if *t, err = time.ParseDuration(parts[i+1]); err != nil || *t < 0 {
			return bad("not a time: " + parts[i+1])
		}
	}
	if o.To <= o.From {
		return bad("it ends before it begins")
	}
	return o, nil
}
