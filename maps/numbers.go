package maps

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
)

// Counters returns events and bytes by reason, summed over the CPUs, since the
// maps were made (pins outlive the agent).
func (s *Set) Counters() ([bpf.ReasonCount]bpf.Counter, error) {
	var all [bpf.ReasonCount]bpf.Counter
	var cpus []bpf.Counter
	for r := range bpf.ReasonCount {
		if err := s.m.Counters.Lookup(r, &cpus); err != nil {
			return all, fmt.Errorf("read counter %s: %w", r, err)
		}
		for _, c := range cpus {
			all[r].Events += c.Events
			all[r].Bytes += c.Bytes
		}
	}
	return all, nil
}

// Uncounted runs f and then puts the counters back to where they were. Nobody else
// may count meanwhile: it is for the time before an agent serves.
func (s *Set) Uncounted(f func()) error {
	var before [bpf.ReasonCount][]bpf.Counter // by CPU
	for r := range bpf.ReasonCount {
		if err := s.m.Counters.Lookup(r, &before[r]); err != nil {
			return fmt.Errorf("read counter %s: %w", r, err)
		}
	}
	f()
	for r := range bpf.ReasonCount {
		if err := s.m.Counters.Put(r, before[r]); err != nil {
			return fmt.Errorf("write counter %s: %w", r, err)
		}
	}
	return nil
}

// Latency is what the kernel delivered for a backend, and the gaps between.
type Latency struct {
	Chunks uint64 // messages redirected; a first token's has no gap before it
	Bytes  uint64
	Sum    time.Duration // of all gaps
	// Gaps[i] counts gaps of [2^i, 2^(i+1)) ns, the last one all longer ones.
	Gaps [len(bpf.Latency{}.Gaps)]uint64
}

// Latency returns a backend's numbers, summed over the CPUs; false when it has no
// row.
func (s *Set) Latency(backend uint32) (Latency, bool, error) {
	var cpus []bpf.Latency
	err := s.m.Latency.Lookup(backend, &cpus)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return Latency{}, false, nil
	}
	if err != nil {
		return Latency{}, false, fmt.Errorf("read latency of backend %d: %w", backend, err)
	}
	var l Latency
	for i := range cpus {
		l.add(&cpus[i])
	}
	return l, true, nil
}

func (l *Latency) add(c *bpf.Latency) {
	l.Chunks += c.Chunks
	l.Bytes += c.Bytes
	l.Sum += time.Duration(c.GapNs)
	for i, n := range c.Gaps {
		l.Gaps[i] += n
	}
}

// Bound returns the upper bound of bucket i, exclusive.
func Bound(i int) time.Duration { return 1 << (i + 1) }

// Count returns how many gaps there are.
func (l *Latency) Count() uint64 {
	var n uint64
	for _, g := range l.Gaps {
		n += g
	}
	return n
}

// Quantile returns the gap that the share q of all gaps does not exceed, 0 without
// gaps. q is clamped to [0, 1]. Inside a bucket the gaps are taken to lie evenly on
// a logarithmic scale, so the answer is within a factor of two of the truth.
func (l *Latency) Quantile(q float64) time.Duration {
	total := l.Count()
	if total == 0 {
		return 0
	}
	rank := max(0, min(1, q)) * float64(total)
	var below float64
	for i, n := range l.Gaps {
		if n == 0 {
			continue
		}
		if below+float64(n) >= rank {
			return time.Duration(math.Exp2(float64(i) + (rank-below)/float64(n)))
		}
		below += float64(n)
	}
	return Bound(len(l.Gaps) - 1)
}

// CounterName is the reason's name of a row of Counters, as used in metrics.
func CounterName(row int) string { return bpf.TautlineReason(row).String() }
