package integration

import (
	"testing"
	"time"

	"github.com/tautline/tautline/tools/bench/stream"
	"github.com/tautline/tautline/tools/bench/usage"
)

// TestWakeups counts how often a thread of the agent sleeps and wakes while it
// relays responses of 300 tokens and does nothing else. Arrival, first tokens and
// end need it; in between the kernel carries the tokens and must let it sleep.
func TestWakeups(t *testing.T) {
	const tokens, from, to = 300, 20, 280 // in between
	pins := bpffs(t) + "/tautline"
	server, err := stream.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	// Polls would be noise.
	a := startAgent(t, pins, []string{server.Addr()}, nil, "poll: {interval: 1h, window: 1h}")
	c := stream.NewClient(a.addr, stream.NewClock())
	defer c.Close()
	every := time.Duration(float64(time.Second) / *rate)
	// ask returns what the agent used for the response, and between two tokens of it.
	ask := func(i int) (all, between spell) {
		s := stream.Spec{Stream: uint32(i), Tokens: tokens, Bytes: 220, Every: every}
		all = begin(t, a)
		faults, first, err := c.Do(t.Context(), s, s.Body(0), func(ch stream.Chunk) {
			switch ch.Seq {
			case from:
				between = begin(t, a)
			case to:
				between = between.end(t, a)
			}
		})
		if err != nil || faults.Any() {
			t.Fatalf("response %d: %v; %s, first: %s", i, err, faults, first)
		}
		return all.end(t, a), between
	}
	ask(0) // dials, and finds threads to run on

	// What it does anyway: the routing table in the kernel once a second.
	idle := begin(t, a)
	time.Sleep(time.Duration(*answers) * tokens * every)
	idle = idle.end(t, a)

	var all, between spell
	for i := range *answers {
		x, y := ask(1 + i)
		all, between = all.plus(x), between.plus(y)
	}
	n := float64(*answers)
	beyond := func(s spell) float64 { return (s.wakeups - idle.wakeups/idle.seconds*s.seconds) / n }
	t.Logf("%d responses of %d tokens at %.0f a second: %.1f wake-ups each, %.1f of them between tokens %d and %d, beyond the %.1f a second of an idle agent",
		*answers, tokens, *rate, beyond(all), beyond(between), from, to, idle.wakeups/idle.seconds)
	if beyond(between) > tokens/4 {
		t.Errorf("%.1f wake-ups between tokens %d and %d: tokens wake the agent", beyond(between), from, to)
	}
	if st := a.idle(); st.Splice.Outcomes["ended/spliced"] < uint64(*answers) {
		t.Errorf("responses were not spliced: %v", st.Splice.Outcomes)
	}
	a.end()
}

// A spell is a time, and how often the agent woke in it.
type spell struct {
	began   time.Time
	seconds float64
	wakeups float64
}

func begin(t *testing.T, a *agent) spell {
	return spell{began: time.Now(), wakeups: -wakeups(t, a)}
}

func (s spell) end(t *testing.T, a *agent) spell {
	return spell{seconds: time.Since(s.began).Seconds(), wakeups: s.wakeups + wakeups(t, a)}
}

func (s spell) plus(o spell) spell {
	return spell{seconds: s.seconds + o.seconds, wakeups: s.wakeups + o.wakeups}
}

// wakeups is how often threads of the agent have slept since it started.
func wakeups(t *testing.T, a *agent) float64 {
	t.Helper()
	u, err := usage.Of(a.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return float64(u.Wakeups)
}
