package sim

import (
	"context"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/sim/policies"
)

// BenchmarkSeed runs the seed's scenario, 36,000 requests at 60/s, under each
// policy: a figure to read, not to fail on. requests/s is by the wall clock;
// requests/cpu-s is by the processor time of all threads, the garbage
// collector's too, and moves less with what else the machine does. The collector
// is set as the command sets it.
func BenchmarkSeed(b *testing.B) {
	p, err := FindPreset("seed")
	if err != nil {
		b.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(GCPercent))
	for _, policy := range policies.All() {
		b.Run(policy.Name, func(b *testing.B) {
			b.ReportAllocs()
			jobs, start := 0, cpuTime(b)
			for i := range b.N {
				res, err := Run(context.Background(), p.At(60), policy, uint64(i)+1)
				if err != nil {
					b.Fatal(err)
				}
				jobs += res.Jobs
			}
			b.ReportMetric(float64(jobs)/b.Elapsed().Seconds(), "requests/s")
			b.ReportMetric(float64(jobs)/(cpuTime(b)-start).Seconds(), "requests/cpu-s")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
