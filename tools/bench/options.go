package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tautline/tautline/tools/bench/peers"
	"github.com/tautline/tautline/tools/bench/report"
	"github.com/tautline/tautline/tools/bench/stream"
)

// Options says what to measure. Start from Default.
type Options struct {
	Paths  []string // names of Kinds and Peers; empty = the usual ones that are installed, and all Peers
	Peers  []string // name=COMMAND, see peers.Command
	Phases []string // of Phases

	// Paced streams.
	API        string // of APIs
	Streams    int
	Rate       float64 // chunks per second of one stream
	Tokens     int     // of one response; then the connection is used again
	ChunkBytes int     // of one chunk's event
	Spread     bool    // false: all streams send on one tick, as the requests of one engine's batch do
	Duration   time.Duration
	Rounds     int

	// Requests.
	Concurrency  int           // requests at once under load
	BodyBytes    int           // of a request
	LoadDuration time.Duration // of one round of requests, and of one of first tokens
	TTFTStreams  int           // streams at once while the time to first token is measured

	IdleStreams   int
	ServerThreads int // GOMAXPROCS of the server; 1 is what a Python server has
	Hogs          int // processes that use a CPU each meanwhile

	Self     []string // how to call tautline, for its agent
	Server   []string // a command that runs stream.Main
	Hog      []string // a command that runs Hog; needed where there are Hogs
	Progress func(line string)
}

// APIs that streams can be asked for in.
const (
	APIChat      = "chat"
	APIResponses = "responses"
)

// APIs lists them. Requests without a stream are always chats.
func APIs() []string { return []string{APIChat, APIResponses} }

// Phases lists what can be measured.
func Phases() []string { return []string{"streams", "requests", "ttft", "idle"} }

// Default is a run of some minutes at the load of the design's own figures.
func Default() Options {
	return Options{
		Phases:  Phases(),
		API:     APIChat,
		Streams: 200, Rate: 50, Tokens: 300, ChunkBytes: 220, Duration: 5 * time.Second, Rounds: 3,
		Concurrency: 200, BodyBytes: 220_000, LoadDuration: 2 * time.Second, TTFTStreams: 20,
		IdleStreams: 1000, ServerThreads: 1,
	}
}

// usual are the paths of a run that names none.
var usual = []string{"direct", "spliced", "unspliced", "nginx", "haproxy"}

// kinds resolves the names of paths, in the order they are given.
func (o *Options) kinds() ([]peers.Kind, error) {
	known := peers.Kinds()
	names := slices.Clone(o.Paths)
	if len(names) == 0 {
		names = slices.Clone(usual)
	}
	for _, text := range o.Peers {
		k, err := peers.Command(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(known, func(o peers.Kind) bool { return o.Name == k.Name }) {
			return nil, fmt.Errorf("peer %s is given twice", k.Name)
		}
		known = append(known, k)
		if len(o.Paths) == 0 {
			names = append(names, k.Name)
		}
	}
	var out []peers.Kind
	for i, name := range names {
		at := slices.IndexFunc(known, func(k peers.Kind) bool { return k.Name == name })
		if at < 0 {
			var all []string
			for _, k := range known {
				all = append(all, k.Name)
			}
			return nil, fmt.Errorf("no path is called %q; there are %s", name, strings.Join(all, ", "))
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("path %s is given twice", name)
		}
		out = append(out, known[at])
	}
	return out, nil
}

// Validate reports every option that cannot be used.
func (o *Options) Validate() error {
	_, err := o.kinds()
	return errors.Join(err, o.validate())
}

func (o *Options) validate() error {
	var errs []error
	within := func(name string, v, low, high float64) {
		if !(v >= low && v <= high) { // also refuses NaN
			errs = append(errs, fmt.Errorf("%s must be from %g to %g, got %g", name, low, high, v))
		}
	}
	within("streams", float64(o.Streams), 1, 100_000)
	within("rate", o.Rate, 0.1, 10_000)
	within("tokens", float64(o.Tokens), 1, 10_000_000)
	within("chunk-bytes", float64(o.ChunkBytes), float64(stream.MinBytes), 1<<20)
	within("rounds", float64(o.Rounds), 1, 1000)
	within("concurrency", float64(o.Concurrency), 1, 100_000)
	within("body-bytes", float64(o.BodyBytes), 0, 64<<20)
	within("ttft-streams", float64(o.TTFTStreams), 1, 100_000)
	within("idle-streams", float64(o.IdleStreams), 1, 100_000)
	within("server-threads", float64(o.ServerThreads), 1, 1024)
	within("hogs", float64(o.Hogs), 0, 1024)
	for name, d := range map[string]time.Duration{"duration": o.Duration, "load-duration": o.LoadDuration} {
		if d < 100*time.Millisecond || d > time.Hour {
			errs = append(errs, fmt.Errorf("%s must be from 100ms to 1h, got %s", name, d))
		}
	}
	if !slices.Contains(APIs(), o.API) {
		errs = append(errs, fmt.Errorf("no api is called %q; there are %s", o.API, strings.Join(APIs(), ", ")))
	}
	if len(o.Phases) == 0 {
		errs = append(errs, errors.New("no phase is asked for"))
	}
	for _, p := range o.Phases {
		if !slices.Contains(Phases(), p) {
			errs = append(errs, fmt.Errorf("no phase is called %q; there are %s", p, strings.Join(Phases(), ", ")))
		}
	}
	return errors.Join(errs...)
}

func (o *Options) has(phase string) bool { return slices.Contains(o.Phases, phase) }

// conns is how many client connections a router must hold at once.
func (o *Options) conns() int {
	n := 1
	for phase, conns := range map[string]int{"streams": o.Streams, "requests": o.Concurrency, "ttft": o.TTFTStreams, "idle": o.IdleStreams} {
		if o.has(phase) {
			n = max(n, conns)
		}
	}
	return n
}

// every is the time between two chunks of a stream.
func (o *Options) every() time.Duration { return time.Duration(float64(time.Second) / o.Rate) }

func (o *Options) logf(format string, a ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, a...))
	}
}

func (o *Options) settings() report.Settings {
	pattern := "batch"
	if o.Spread {
		pattern = "spread"
	}
	return report.Settings{
		API: o.API, Streams: o.Streams, Rate: o.Rate, Tokens: o.Tokens, ChunkBytes: o.ChunkBytes, Pattern: pattern,
		Rounds: o.Rounds, Seconds: o.Duration.Seconds(), Concurrency: o.Concurrency, BodyBytes: o.BodyBytes,
		TTFTStreams: o.TTFTStreams, IdleStreams: o.IdleStreams, ServerThreads: o.ServerThreads, Hogs: o.Hogs,
	}
}
