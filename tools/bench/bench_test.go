package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/bench/stream"
	"github.com/tautline/tautline/tools/bench/usage"
)

// TestMain lets the test binary be the stream server and a router.
func TestMain(m *testing.M) {
	if os.Getenv("BENCH_TEST_AS") == "" {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "serve":
		if err := stream.Main(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
	case "hog":
		Hog(os.Stdin)
	case "route":
		route(os.Args[2], os.Args[3], os.Args[4])
	}
	os.Exit(0)
}

// short are options of a run that takes a second or two.
func short(t *testing.T) Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("BENCH_TEST_AS", "run")
	t.Setenv("TMPDIR", t.TempDir())
	o := Default()
	o.Server = []string{self, "serve"}
	o.Hog = []string{self, "hog"}
	o.Self = []string{self, "no-agent-here"}
	o.Paths = []string{"direct", "own"}
	o.Peers = []string{"own='" + self + "' route faithful {listen} {upstream}"}
	o.Streams, o.Tokens, o.Rate, o.Rounds = 10, 20, 100, 1
	o.Duration, o.LoadDuration = 300*time.Millisecond, 200*time.Millisecond
	o.Concurrency, o.BodyBytes, o.TTFTStreams, o.IdleStreams = 8, 20_000, 4, 20
	o.Progress = func(line string) { t.Log(line) }
	return o
}

// leftNothing wants no child and no file of a run.
func leftNothing(t *testing.T) {
	t.Helper()
	if kids := usage.Descendants(os.Getpid()); len(kids) > 0 {
		t.Errorf("processes %v are left", kids)
	}
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "tautline-bench-*"))
	if err != nil || len(files) > 0 {
		t.Errorf("files %v are left, %v", files, err)
	}
}

func TestRunMeasuresEveryPhase(t *testing.T) {
	o := short(t)
	o.Rounds = 2
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	leftNothing(t)
	if !r.Exact() {
		var b strings.Builder
		_ = r.Table(&b)
		t.Fatalf("not exact:\n%s", b.String())
	}
	if len(r.Paths) != 2 || len(r.Summary) != 2 || r.Paths[0].Name != "direct" || r.Paths[1].Name != "own" {
		t.Fatalf("paths %+v", r.Paths)
	}
	for _, p := range r.Paths {
		router := p.Name != "direct"
		if len(p.Streams) != 2 || len(p.Requests) != 2 || len(p.TTFT) != 2 || p.Idle == nil {
			t.Fatalf("%s: not measured in every phase and round: %+v", p.Name, p)
		}
		for _, s := range p.Streams {
			if s.Chunks == 0 || s.P50 <= 0 || s.P50 > s.P90 || s.P90 > s.P99 || s.P99 > s.Max || s.AllChunks < s.Chunks {
				t.Errorf("%s: %+v", p.Name, s)
			}
			if s.RouterCPU.OK != router || !s.ServerCPU.OK || !s.MachineCPU.OK {
				t.Errorf("%s: CPU of the wrong ones: %+v", p.Name, s)
			}
			if s.Spliced.OK {
				t.Errorf("%s tells a spliced share", p.Name)
			}
		}
		for _, q := range p.Requests {
			if q.Requests == 0 || q.PerSec <= 0 || q.RouterCPU.OK != router {
				t.Errorf("%s: %+v", p.Name, q)
			}
		}
		for _, q := range p.TTFT {
			if q.Requests == 0 || q.P50 <= 0 {
				t.Errorf("%s: %+v", p.Name, q)
			}
		}
		if p.Idle.PerStream.OK != router {
			t.Errorf("%s: %+v", p.Name, p.Idle)
		}
	}
}

// TestHogs: they run while something is measured, and not longer.
func TestHogs(t *testing.T) {
	most := func(hogs int) (n int) {
		o := short(t)
		o.Phases = []string{"streams"}
		o.Hogs = hogs
		o.Progress = func(line string) {
			if strings.HasPrefix(line, "round ") {
				n = max(n, len(usage.Descendants(os.Getpid())))
			}
		}
		r, err := Run(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		leftNothing(t)
		if r.Settings.Hogs != hogs || !r.Exact() {
			t.Errorf("%d hogs are reported, exact %v", r.Settings.Hogs, r.Exact())
		}
		return n
	}
	if without, with := most(0), most(2); with != without+2 {
		t.Errorf("%d processes with two hogs, %d without", with, without)
	}
}

func TestRunReportsACorruptingRouter(t *testing.T) {
	o := short(t)
	o.Phases = []string{"streams"}
	o.Peers[0] = strings.Replace(o.Peers[0], "faithful", "flip", 1)
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	leftNothing(t)
	if r.Exact() {
		t.Error("a router that flips bits is called exact")
	}
	if f := r.Paths[1].Streams[0].Faults; f.Damaged == 0 {
		t.Errorf("faults: %s", f)
	}
	if f := r.Paths[0].Streams[0].Faults; f.Any() {
		t.Errorf("direct: %s", f)
	}
}

func TestRunReportsARouterThatRefuses(t *testing.T) {
	o := short(t)
	o.Peers[0] = strings.Replace(o.Peers[0], "faithful", "refuse", 1)
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	leftNothing(t)
	p := r.Paths[1]
	if r.Exact() || p.Streams[0].Failed == 0 || p.Requests[0].Failed == 0 || p.TTFT[0].Failed == 0 || p.Idle.Failed == 0 {
		t.Errorf("refusals were not counted: %+v", p)
	}
	if !strings.Contains(p.Streams[0].First, "503") {
		t.Errorf("first error: %q", p.Streams[0].First)
	}
}

func TestCancelledRunLeavesNothing(t *testing.T) {
	for _, at := range []string{"starting own", "silent streams", "streams: own", "requests: direct"} {
		t.Run(at, func(t *testing.T) {
			o := short(t)
			o.Phases = []string{"streams", "requests", "idle"}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			o.Progress = func(line string) {
				if strings.Contains(line, at) {
					cancel()
				}
			}
			if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			leftNothing(t)
		})
	}
}

func TestAbsentAgentIsSkippedUnlessAskedFor(t *testing.T) {
	o := short(t)
	o.Phases = []string{"ttft"}
	o.Paths = nil
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Path("spliced") != nil || r.Path("own") == nil {
		t.Errorf("paths: %+v", r.Summary)
	}
	if _, err := r.SplicedShare(); err == nil || !strings.Contains(err.Error(), "nothing was spliced") {
		t.Errorf("got %v", err)
	}
	o.Paths = []string{"direct", "spliced"}
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "spliced: ") {
		t.Errorf("asked for by name: got %v", err)
	}
	leftNothing(t)
}

func TestBadOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no such path":    {func(o *Options) { o.Paths = []string{"envoy"} }, `no path is called "envoy"`},
		"path twice":      {func(o *Options) { o.Paths = []string{"direct", "direct"} }, "given twice"},
		"peer twice":      {func(o *Options) { o.Peers = []string{"a=x {listen}", "a=y {listen}"} }, "given twice"},
		"bad peer":        {func(o *Options) { o.Peers = []string{"a"} }, "name=COMMAND"},
		"no such phase":   {func(o *Options) { o.Phases = []string{"all"} }, `no phase is called "all"`},
		"no phase":        {func(o *Options) { o.Phases = nil }, "no phase"},
		"no streams":      {func(o *Options) { o.Streams = 0 }, "streams must be"},
		"small chunks":    {func(o *Options) { o.ChunkBytes = 20 }, "chunk-bytes must be"},
		"no rate":         {func(o *Options) { o.Rate = 0 }, "rate must be"},
		"short":           {func(o *Options) { o.Duration = time.Millisecond }, "duration must be"},
		"too many":        {func(o *Options) { o.IdleStreams = 1 << 30 }, "idle-streams must be"},
		"no rounds":       {func(o *Options) { o.Rounds = 0 }, "rounds must be"},
		"negative body":   {func(o *Options) { o.BodyBytes = -1 }, "body-bytes must be"},
		"no server CPU":   {func(o *Options) { o.ServerThreads = 0 }, "server-threads must be"},
		"no concurrency":  {func(o *Options) { o.Concurrency = 0 }, "concurrency must be"},
		"no ttft streams": {func(o *Options) { o.TTFTStreams = 0 }, "ttft-streams must be"},
		"tokens":          {func(o *Options) { o.Tokens = 0 }, "tokens must be"},
	} {
		o := Default()
		tc.change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.want)
		}
	}
	o := Default()
	if err := o.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// TestWatermarksOfClientsDiffer: what could be mixed up must be told apart.
func TestWatermarksOfClientsDiffer(t *testing.T) {
	seen := map[uint32]bool{}
	first := uint32(maxMark - 3) // so that the next fleets wrap around
	for range 3 {
		for client := range 5 {
			for turn := range 100 {
				w := watermark(first, client, turn)
				if seen[w] {
					t.Fatalf("watermark %d is used twice", w)
				}
				seen[w] = true
			}
		}
		first = (first + 5) % maxMark
	}
}
