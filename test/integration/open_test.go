package integration

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/bench/stream"
	"github.com/tautline/tautline/tools/bench/usage"
)

// TestManyOpenStreams: as many streams as are asked for are open at a time, silent
// after their first tokens; then they all end, and every one is exact.
func TestManyOpenStreams(t *testing.T) {
	pins := bpffs(t) + "/tautline"
	server, err := stream.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	a := startAgent(t, pins, []string{server.Addr()}, nil)
	before, err := usage.Of(a.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}

	const hold = 5
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	clock := stream.NewClock()
	var silent atomic.Int64
	var wg sync.WaitGroup
	for i := range *open {
		wg.Go(func() {
			c := stream.NewClient(a.addr, clock)
			defer c.Close()
			s := stream.Spec{Stream: uint32(i), Tokens: 1000, Hold: hold, Bytes: 220, Every: 20 * time.Millisecond, Spread: true}
			faults, first, err := c.Do(ctx, s, s.Body(0), func(ch stream.Chunk) {
				if ch.Seq == hold {
					silent.Add(1)
				}
			})
			if err != nil || faults.Any() {
				t.Errorf("stream %d: %v; %s, first: %s", i, err, faults, first)
				cancel()
			}
		})
	}
	for silent.Load() < int64(*open) && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	if n := a.status().ActiveStreams; n != int64(*open) && ctx.Err() == nil {
		t.Errorf("%d requests are active, want %d", n, *open)
	}
	with, err := usage.Of(a.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d open streams: %d MiB, %.1f KiB for each", *open, with.RSS>>20, float64(with.RSS-before.RSS)/1024/float64(*open))
	server.Stop()
	wg.Wait()
	st := a.idle()
	if n := st.Splice.Outcomes["ended/spliced"]; n < uint64(*open)*9/10 && ctx.Err() == nil {
		t.Errorf("%d of %d responses were spliced: %v", n, *open, st.Splice.Outcomes)
	}
	a.end()
}
