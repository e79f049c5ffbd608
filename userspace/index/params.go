package index

import (
	"fmt"
	"math"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// Params are the settings of an Index. See Default and Validate.
type Params struct {
	Capacity       int           // keys per backend while its KV capacity is unknown
	CapacityTokens int64         // KV tokens per backend; 0 = what the engine reports
	TiersFactor    float64       // what all cache tiers hold over what the engine's first tier holds
	TTL            time.Duration // how long a confirmed key counts
	PendingTTL     time.Duration // how long a pending mark lives without an answer
	ByArrival      bool          // requests take no time: End changes no order (for a simulated cache that is filled on arrival)
}

// Default returns the seed's settings.
func Default() Params {
	return Params{
		Capacity: 16384, TiersFactor: 1,
		TTL: 600 * time.Second, PendingTTL: 30 * time.Second,
	}
}

// maxTTL leaves the clock, which counts nanoseconds in 64 bits, as much room
// again for the instants that the TTL is added to.
const maxTTL = time.Duration(math.MaxInt64 / 2)

// MaxTTLSeconds is the largest prefix_affinity.ttl_secs that fits the clock.
const MaxTTLSeconds = int64(maxTTL / time.Second)

// maxCapacity bounds the keys of one backend so that their numbers fit 32 bits.
const maxCapacity = 1 << 28

// Validate reports the first setting that cannot work, by its name in the
// configuration.
func (p Params) Validate() error {
	switch {
	case p.Capacity < 1 || p.Capacity > maxCapacity:
		return fmt.Errorf("prefix_affinity.capacity must be in [1, %d], got %d", maxCapacity, p.Capacity)
	case p.CapacityTokens < 0:
		return fmt.Errorf("prefix_affinity.capacity_tokens must be auto or positive, got %d", p.CapacityTokens)
	case !(p.TiersFactor > 0) || p.TiersFactor > 1e6:
		return fmt.Errorf("prefix_affinity.kv_tiers_factor must be in (0, 1e6], got %v", p.TiersFactor)
	case p.TTL <= 0 || p.TTL > maxTTL:
		return fmt.Errorf("prefix_affinity.ttl_secs must be in [1, %d] to fit the monotonic clock, got %v", MaxTTLSeconds, p.TTL)
	case p.PendingTTL <= 0 || p.PendingTTL > maxTTL:
		return fmt.Errorf("prefix_affinity.pending_secs must be in [1, %d] to fit the monotonic clock, got %v", MaxTTLSeconds, p.PendingTTL)
	}
	return nil
}

// FirstTier is Blocks of what the engine reports and nothing else: there is at least as much.
func (p Params) FirstTier(engineTokens int64, bytesPerToken float64) int {
	p.TiersFactor, p.CapacityTokens = 1, 0
	return p.Blocks(engineTokens, bytesPerToken)
}

// Blocks converts the KV capacity that an engine reports, in tokens, to blocks
// of canonical prompt: what SetCapacity takes. CapacityTokens, when set, stands
// in for the report. 0 = unknown.
func (p Params) Blocks(engineTokens int64, bytesPerToken float64) int {
	t := float64(engineTokens) * p.TiersFactor
	if p.CapacityTokens > 0 {
		t = float64(p.CapacityTokens)
	}
	if t <= 0 {
		return 0
	}
	blocks := math.Round(t * bytesPerToken / key.BlockBytes)
	return int(min(max(blocks, 1), maxCapacity))
}
