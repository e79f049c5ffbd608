package integration

import (
	"testing"
	"time"

	"github.com/tautline/tautline/tools/bench/stream"
	"github.com/tautline/tautline/tools/bench/usage"
)

// TestWakeups counts how often a thread of the agent sleeps and wakes during a
// response of 300 tokens on an agent that does nothing else: what the kernel
// carries must not wake it.
func TestWakeups(t *testing.T) {
	const tokens = 300
	pins := bpffs(t) + "/tautline"
	server, err := stream.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	a := startAgent(t, pins, []string{server.Addr()}, nil)
	read := func() usage.Usage {
		u, err := usage.Of(a.cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	c := stream.NewClient(a.addr, stream.NewClock())
	defer c.Close()
	every := time.Duration(float64(time.Second) / *rate)
	ask := func(i int) {
		s := stream.Spec{Stream: uint32(i), Tokens: tokens, Bytes: 220, Every: every}
		faults, first, err := c.Do(t.Context(), s, s.Body(0), func(stream.Chunk) {})
		if err != nil || faults.Any() {
			t.Fatalf("response %d: %v; %s, first: %s", i, err, faults, first)
		}
	}
	ask(0) // dials, and finds threads to run on

	// What it does anyway: polls, and the routing table once a second.
	idle, began := read(), time.Now()
	time.Sleep(time.Duration(*answers) * tokens * every)
	idle = read().Sub(idle)
	rest := float64(idle.Wakeups) / time.Since(began).Seconds()

	busy, began := read(), time.Now()
	for i := range *answers {
		ask(1 + i)
	}
	busy = read().Sub(busy)
	took := time.Since(began).Seconds()
	each := (float64(busy.Wakeups) - rest*took) / float64(*answers)
	t.Logf("%d responses of %d tokens at %.0f a second: %.1f wake-ups each beyond the %.1f a second of an idle agent; %.2f ms CPU each, all in all",
		*answers, tokens, *rate, each, rest, busy.CPU.Seconds()*1e3/float64(*answers))
	if each > tokens/4 {
		t.Errorf("%.1f wake-ups for a response: tokens wake the agent", each)
	}
	if st := a.idle(); st.Splice.Outcomes["ended/spliced"] < uint64(*answers) {
		t.Errorf("responses were not spliced: %v", st.Splice.Outcomes)
	}
	a.end()
}
