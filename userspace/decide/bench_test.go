package decide

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// cpu reports the processor time of a benchmark per operation. ns/op is wall
// time, which on a machine that others use too says little.
func cpu(b *testing.B) (stop func()) {
	runtime.LockOSThread()
	read := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(1 /* RUSAGE_THREAD */, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ReportAllocs()
	b.ResetTimer()
	start := read()
	return func() {
		b.ReportMetric(float64(read()-start)/float64(b.N), "cpu-ns/op")
		runtime.UnlockOSThread()
	}
}

// BenchmarkRoute is one decision with everything around it: look-up of 512 keys
// over 64 backends whose memories are full, choice, reservation, marks. ns/op
// and cpu-ns/op are the request's whole life; route-p50-ns is the wall time of
// Route alone.
func BenchmarkRoute(b *testing.B) { benchmarkRoute(b, StickyUntilSaturated) }

// BenchmarkRoutePricedSpread is the same under the policy that needs most.
func BenchmarkRoutePricedSpread(b *testing.B) { benchmarkRoute(b, PricedSpread) }

func benchmarkRoute(b *testing.B, policy Policy) {
	for _, holders := range []int{0, 1, 64} {
		b.Run(fmt.Sprintf("%dOf64Hold512Keys", holders), func(b *testing.B) {
			f := newFleet(b, 64, func(p *Params) { p.Policy = policy })
			rnd := rand.New(rand.NewPCG(3, 4))
			for slot := range 64 {
				for range 32 {
					other := randomPrompt(rnd, key.MaxKeys)
					f.index.Confirm(f.index.Mark(slot, other.Keys, nil, 0), 0)
				}
			}
			r := randomPrompt(rnd, key.MaxKeys)
			for slot := range holders {
				f.index.Confirm(f.index.Mark(slot, r.Keys, nil, 0), 0)
			}
			cold := make([]Request, 512)
			for i := range cold {
				cold[i] = randomPrompt(rnd, key.MaxKeys)
			}
			took := make([]time.Duration, 0, b.N)
			stop := cpu(b)
			for i := range b.N {
				q := r
				if holders == 0 {
					q = cold[i%len(cold)]
				}
				start := time.Now()
				t, _ := f.Route(q, time.Second)
				took = append(took, time.Since(start))
				t.FirstToken(time.Second)
				if holders == 0 {
					t.Refused(time.Second) // so that nobody holds it the next time
				} else {
					t.Confirm(time.Second)
				}
				t.Done(time.Second)
			}
			stop()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "route-p50-ns")
		})
	}
}

func BenchmarkConfirm512Keys(b *testing.B) {
	f := newFleet(b, 64, nil)
	r := randomPrompt(rand.New(rand.NewPCG(3, 4)), key.MaxKeys)
	defer cpu(b)()
	for i := range b.N {
		t, _ := f.Route(r, time.Duration(i))
		t.Confirm(time.Duration(i))
		t.Done(time.Duration(i))
	}
}

// BenchmarkSimulated is the life of one request as the simulator has it: ten
// backends, three synthetic keys.
func BenchmarkSimulated(b *testing.B) {
	f := newFleet(b, 10, nil)
	f.SetIndexParams(index.Params{Capacity: 16384, TiersFactor: 1, TTL: time.Hour, PendingTTL: time.Hour})
	for slot := range 10 {
		f.Observe(slot, load.Sample{CapacityTok: 262144, HasQueue: true}, 0)
	}
	reqs := make([]Request, 400)
	for i := range reqs {
		reqs[i] = Request{
			Model: "m", Tokens: 56500, Stream: true, Pinned: -1,
			Keys: []key.Key{key.Key(i % 40), key.Key(1000 + i), key.Key(2000 + i)}, Cover: []int32{859, 870, 883},
		}
	}
	defer cpu(b)()
	for i := range b.N {
		now := time.Duration(i) * time.Millisecond
		t, _ := f.Route(reqs[i%len(reqs)], now)
		t.FirstToken(now)
		t.Confirm(now)
		t.Done(now)
	}
}

func randomPrompt(rnd *rand.Rand, n int) Request {
	r := prompt(0, n)
	for i := range r.Keys {
		r.Keys[i] = key.Key(rnd.Uint64())
	}
	return r
}
