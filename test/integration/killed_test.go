package integration

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
)

// TestKilledAgentProcess: the agent is killed while streams are under way. Every
// connection of the engine is told at once, nobody gets a byte that is not his
// nor an end that is none, and the next agent with the same pins splices again
// before the same engine process.
func TestKilledAgentProcess(t *testing.T) {
	pins := bpffs(t) + "/tautline"
	w := newWatch()
	e := startEngine(t, w)
	first := startAgent(t, pins, []string{e.addr()}, nil)

	// Streams whose engine waits for its client to leave after the last event, so
	// that all are open.
	const n = 50
	var seeds []uint64
	for seed := rand.Uint64() >> 1; len(seeds) < n; seed++ {
		if p := newPlan(seed); p.how == halfCloses {
			seeds = append(seeds, seed)
		}
	}
	var ready, wg sync.WaitGroup
	ready.Add(n)
	for _, seed := range seeds {
		wg.Go(func() {
			p := newPlan(seed)
			p.how, p.after = stays, len(p.body)+1 // the client's part: it wants all of it
			c := &client{watched: w, buf: make([]byte, 8<<10)}
			defer c.leave()
			c.reached = map[int]func(){len(p.body): ready.Done}
			if err := c.do(first.addr, p); err == nil {
				t.Errorf("stream %x ended", seed)
			} else if wrong := (*foreignError)(nil); errors.As(err, &wrong) {
				t.Error(err)
			}
		})
	}
	ready.Wait()
	set, err := maps.Open(pins)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	// Not all: a flow whose last message was passed waits, armed, for the next one.
	if live, err := set.Live(); err != nil || live[bpf.FlowSpliced] == 0 {
		t.Errorf("flows before the kill: %v, %v; none is spliced", live, err)
	}
	for _, seed := range seeds {
		w.leave(seed, false)
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.done
	wg.Wait()
	await(t, "the engine's connections to be closed", func() bool { return e.open() == 0 })
	w.mu.Lock()
	t.Logf("%d streams under way: the engine was told after %v at the most", len(w.delays[halfCloses]), w.delays[halfCloses].quantile(1))
	if len(w.delays[halfCloses]) != n || len(w.wrong) > 0 {
		t.Errorf("%d of %d streams were ended by the kill; %v", len(w.delays[halfCloses]), n, w.wrong)
	}
	w.mu.Unlock()

	before, err := set.Counters()
	if err != nil {
		t.Fatal(err)
	}
	next := startAgent(t, pins, []string{e.addr()}, nil)
	st := wholes(t, next, e, 10)
	after, err := set.Counters()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the next agent: %d messages spliced, responses %v", after[bpf.Redirected].Events-before[bpf.Redirected].Events, st.Splice.Outcomes)
	next.end()
}

// TestKilledWhileItStarts: the agent is killed once this many of its pins are there.
// The next one starts all the same, and splices.
func TestKilledWhileItStarts(t *testing.T) {
	pins := bpffs(t) + "/tautline"
	e := startEngine(t, newWatch())
	startAgent(t, pins, []string{e.addr()}, nil).end() // or the kernel cannot splice here
	if err := os.RemoveAll(pins); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 4, len(bpf.Pinned())} {
		cmd := exec.Command(binary(t), "agent", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), "TAUTLINE_SPLICE_PIN_PATH="+pins)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "pins", func() bool {
			made, err := os.ReadDir(maps.Dir(pins))
			return err == nil && len(made) >= n
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Logf("killed with %d pins: %v", n, maps.Verify(pins))
		startAgent(t, pins, []string{e.addr()}, nil).end()
		if err := os.RemoveAll(pins); err != nil {
			t.Fatal(err)
		}
	}
}
