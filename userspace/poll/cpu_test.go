package poll

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/load"
)

// serveEnv makes the test binary an engine in a process of its own, so that
// the polling process's CPU can be told from the engine's.
const serveEnv = "TAUTLINE_POLL_TEST_ENGINE"

// serveEngine answers as an engine until its standard input ends.
func serveEngine() {
	e := newBareEngine()
	fmt.Println(e.addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
	e.close()
}

// otherProcess starts an engine in another process and returns its URL.
func otherProcess(b *testing.B) string {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serveEnv+"=1")
	_, out := testutil.Start(b, cmd)
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		b.Fatal(err)
	}
	return "http://" + addr
}

// cpu is what this process has used so far.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPoll is one poll of a realistic page over loopback; cpu-us/poll is
// the CPU of this process alone, user and system.
func BenchmarkPoll(b *testing.B) {
	address := otherProcess(b)
	p, err := New(Default(), newEar(), func() time.Duration { return 0 })
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	t := benchTarget(b, p, address)
	params := p.current()
	b.ReportAllocs()
	before := cpu(b)
	for b.Loop() {
		if _, no := t.from(context.Background(), &params, sourceMetrics); no != nil {
			b.Fatal(no)
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/poll")
	t.fetch.close()
}

// benchTarget is a target without a goroutine.
func benchTarget(b *testing.B, p *Poller, address string) *target {
	base, err := url.Parse(address)
	if err != nil {
		b.Fatal(err)
	}
	t := &target{poller: p, fetch: newFetcher(base, nil, &p.buffers)}
	t.requests[sourceMetrics] = get(base, "/metrics", "*/*")
	return t
}

type deaf struct{}

func (deaf) Observe(int, load.Sample, time.Duration) {}
func (deaf) PollFailed(int, time.Duration)           {}
func (deaf) Unreachable(int, time.Duration)          {}
func (deaf) ConnectFailed(int, time.Duration)        {}
func (deaf) SetModels(int, []string)                 {}

// BenchmarkHundredBackends polls a hundred backends each second; one iteration
// is one second. percent-core is the share of a core that this process used.
func BenchmarkHundredBackends(b *testing.B) {
	address := otherProcess(b)
	p, err := New(Default(), deaf{}, func() time.Duration { return 0 })
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for i := range 100 {
		if err := p.Add(Target{Slot: i, Name: fmt.Sprint("gpu", i), URL: address}); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(2 * time.Second) // connected, spread out
	before, from := cpu(b), time.Now()
	for b.Loop() {
		time.Sleep(time.Second)
	}
	used, passed := cpu(b)-before, time.Since(from)
	b.ReportMetric(100*used.Seconds()/passed.Seconds(), "percent-core")
	for _, s := range p.Status(nil) {
		if s.Failures > 0 {
			b.Fatalf("%s: %d polls failed: %s", s.Name, s.Failures, s.Last)
		}
	}
}
