// Package report holds what a benchmark measured, condenses it, and prints it
// as a table, as JSON and as a chart. It measures nothing itself.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tautline/tautline/tools/bench/stream"
)

// Value is a number that may be absent: a path without a router has no CPU of
// its own, an agent may not tell its spliced share. JSON null, "-" in a table.
type Value struct {
	X  float64
	OK bool
}

// Of is a value that is there.
func Of(x float64) Value { return Value{x, true} }

// MarshalJSON writes the number or null.
func (v Value) MarshalJSON() ([]byte, error) {
	if !v.OK {
		return []byte("null"), nil
	}
	return json.Marshal(v.X)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (v *Value) UnmarshalJSON(b []byte) error {
	*v = Value{}
	if string(b) == "null" {
		return nil
	}
	v.OK = true
	return json.Unmarshal(b, &v.X)
}

// over is v/w, absent when it has no meaning.
func (v Value) over(w Value) Value {
	if !v.OK || !w.OK || w.X == 0 {
		return Value{}
	}
	return Of(v.X / w.X)
}

func (v Value) minus(w Value) Value {
	if !v.OK || !w.OK {
		return Value{}
	}
	return Of(v.X - w.X)
}

// Report is a whole run.
type Report struct {
	Host     Host      `json:"host"`
	Settings Settings  `json:"settings"`
	Paths    []Path    `json:"paths"`   // in the order they were asked for
	Skipped  []Skipped `json:"skipped"` // asked for or usual, but not measured
	Summary  []Row     `json:"summary"` // from Summarize
}

// Host is where it ran.
type Host struct {
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"`
	Go     string `json:"go"`
}

// Settings is what was asked for.
type Settings struct {
	API           string  `json:"api"` // of the streams: chat or responses
	Streams       int     `json:"streams"`
	Rate          float64 `json:"chunks_per_second"` // of one stream
	Tokens        int     `json:"tokens"`            // of one response
	ChunkBytes    int     `json:"chunk_bytes"`
	Pattern       string  `json:"pattern"` // batch or spread
	Rounds        int     `json:"rounds"`
	Seconds       float64 `json:"seconds"` // measured in each round
	Concurrency   int     `json:"concurrency"`
	BodyBytes     int     `json:"body_bytes"`
	TTFTStreams   int     `json:"ttft_streams"`
	IdleStreams   int     `json:"idle_streams"`
	ServerThreads int     `json:"server_threads"`
	Hogs          int     `json:"hogs"` // processes that used a CPU each meanwhile
}

// Skipped is a path that was not measured.
type Skipped struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Path is one way from client to server, measured once a round. A phase that
// was not asked for has no rounds.
type Path struct {
	Name     string         `json:"name"`
	About    string         `json:"about"`
	Streams  []StreamRound  `json:"streams"`
	Requests []RequestRound `json:"requests"`
	TTFT     []TTFTRound    `json:"ttft"`
	Idle     *Idle          `json:"idle"`
}

// StreamRound is one round of paced streams. Latency is from just before the
// server's write to just after the client's read. CPU is that of the window
// divided by the chunks that arrived in it.
type StreamRound struct {
	P50     float64 `json:"p50_us"`
	P90     float64 `json:"p90_us"`
	P99     float64 `json:"p99_us"`
	Max     float64 `json:"max_us"`
	PerSec  float64 `json:"chunks_per_second"` // all streams together
	Chunks  int     `json:"chunks"`            // in the window
	Answers int     `json:"responses"`         // ended in the window

	RouterCPU  Value `json:"router_cpu_us_per_chunk"`
	ServerCPU  Value `json:"server_cpu_us_per_chunk"`
	ClientCPU  Value `json:"client_cpu_us_per_chunk"`
	MachineCPU Value `json:"machine_cpu_us_per_chunk"`
	Busy       Value `json:"machine_busy"`   // share of all CPUs
	Stolen     Value `json:"machine_stolen"` // share taken by the host

	Switches    Value `json:"switches_per_response"`    // voluntary context switches of the router
	Preemptions Value `json:"preemptions_per_response"` // involuntary ones
	RSS         Value `json:"router_rss_bytes"`

	Spliced          Value              `json:"spliced_share"` // of the bytes after each response's first chunk
	SplicedResponses map[string]float64 `json:"splice_responses,omitempty"`

	AllChunks    int           `json:"all_chunks"`    // with those before and after the window
	AllResponses int           `json:"all_responses"` // checked to the last byte
	Faults       stream.Faults `json:"faults"`
	Failed       int           `json:"failed"`                // responses that were not a 200
	First        string        `json:"first_error,omitempty"` // what went wrong first
}

// RequestRound is one round of request load: large bodies, answered at once.
type RequestRound struct {
	PerSec     float64 `json:"requests_per_second"`
	P50        float64 `json:"p50_us"` // request written to answer read
	P99        float64 `json:"p99_us"`
	Requests   int     `json:"requests"`
	RouterCPU  Value   `json:"router_cpu_us_per_request"`
	MachineCPU Value   `json:"machine_cpu_us_per_request"`
	Busy       Value   `json:"machine_busy"`
	RSS        Value   `json:"router_rss_bytes"`
	Failed     int     `json:"failed"`
	First      string  `json:"first_error,omitempty"`
}

// TTFTRound is one round of few streams with large bodies: time to first token.
type TTFTRound struct {
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	First    string  `json:"first_error,omitempty"`
}

// Idle is what streams that are open but silent cost.
type Idle struct {
	Streams   int     `json:"streams"`
	Before    Value   `json:"router_rss_before_bytes"`
	With      Value   `json:"router_rss_with_bytes"`
	PerStream Value   `json:"router_rss_per_stream_bytes"`
	CPU       Value   `json:"router_cpu_share"` // of one CPU while all are silent
	Failed    int     `json:"failed"`
	First     string  `json:"first_error,omitempty"`
	Seconds   float64 `json:"seconds"`
}

// Exact says whether every response of every path came whole and right.
func (r *Report) Exact() bool {
	for _, p := range r.Paths {
		for _, s := range p.Streams {
			if s.Faults.Any() || s.Failed > 0 || s.AllResponses == 0 {
				return false
			}
		}
		for _, q := range p.Requests {
			if q.Failed > 0 || q.Requests == 0 {
				return false
			}
		}
		for _, q := range p.TTFT {
			if q.Failed > 0 || q.Requests == 0 {
				return false
			}
		}
		if p.Idle != nil && p.Idle.Failed > 0 {
			return false
		}
	}
	return true
}

// Path finds a path by name; nil when it was not measured.
func (r *Report) Path(name string) *Path {
	i := slices.IndexFunc(r.Paths, func(p Path) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Paths[i]
}

// SplicedShare is the smallest share that a round of the spliced path had. The
// error says why there is none.
func (r *Report) SplicedShare() (float64, error) {
	p := r.Path("spliced")
	if p == nil {
		for _, s := range r.Skipped {
			if s.Name == "spliced" {
				return 0, fmt.Errorf("nothing was spliced: %s", s.Why)
			}
		}
		return 0, errors.New("the spliced path was not asked for")
	}
	if len(p.Streams) == 0 {
		return 0, errors.New("the spliced share is known only where streams are measured")
	}
	share := math.Inf(1)
	for i, s := range p.Streams {
		if !s.Spliced.OK {
			return 0, fmt.Errorf("the agent told no spliced share in round %d", i+1)
		}
		share = min(share, s.Spliced.X)
	}
	return share, nil
}
