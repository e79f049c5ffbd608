package traffic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Record is one request of a trace, a line of JSON.
type Record struct {
	Time    float64  `json:"time"`              // seconds since the trace's start
	Chain   []uint64 `json:"chain"`             // IDs of the prompt's pieces, each within its predecessors
	Lengths []int    `json:"lengths,omitempty"` // tokens per piece; none = Piece each, the last the rest
	Input   int      `json:"input"`             // prompt tokens
	Output  int      `json:"output"`            // answer tokens
	Session string   `json:"session,omitempty"` // kept for the reader; the replay does not wait for answers
	Model   string   `json:"model,omitempty"`
}

// Piece is the length in tokens of a piece of a chain that gives no lengths, as
// in the Mooncake traces.
const Piece = 512

// Trace is a recorded workload.
type Trace struct{ records []Record }

// maxLine bounds a line of a trace.
const maxLine = 16 << 20

// ReadTrace reads a trace of one Record per line. Empty lines are skipped. The
// error names the line. Records are put into the order of their time.
func ReadTrace(r io.Reader) (*Trace, error) {
	t := &Trace{}
	err := eachLine(r, func(line []byte) error {
		var rec Record
		if err := json.Unmarshal(line, &rec); err != nil {
			return err
		}
		if err := rec.valid(); err != nil {
			return err
		}
		t.records = append(t.records, rec)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(t.records) == 0 {
		return nil, fmt.Errorf("the trace holds no request")
	}
	slices.SortStableFunc(t.records, func(a, b Record) int {
		switch {
		case a.Time < b.Time:
			return -1
		case a.Time > b.Time:
			return 1
		}
		return 0
	})
	return t, nil
}

func (r *Record) valid() error {
	switch {
	case !(r.Time >= 0) || r.Time > 1e9:
		return fmt.Errorf("time %v: must be in [0, 1e9]", r.Time)
	case r.Input < 1 || r.Input > 1<<30:
		return fmt.Errorf("input %d: must be in [1, 2^30]", r.Input)
	case r.Output < 0 || r.Output > 1<<30:
		return fmt.Errorf("output %d: must be in [0, 2^30]", r.Output)
	case len(r.Lengths) > 0 && len(r.Lengths) != len(r.Chain):
		return fmt.Errorf("%d lengths for %d pieces", len(r.Lengths), len(r.Chain))
	}
	for _, n := range r.Lengths {
		if n < 1 || n > 1<<30 {
			return fmt.Errorf("length %d: must be in [1, 2^30]", n)
		}
	}
	return nil
}

func eachLine(r io.Reader, do func([]byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	n := 1
	for ; s.Scan(); n++ {
		line := s.Bytes()
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // editors on Windows begin a file so
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := do(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d bytes", n, maxLine)
	}
	return s.Err()
}

// Len returns the number of requests.
func (t *Trace) Len() int { return len(t.records) }

// Length is the time of the last request.
func (t *Trace) Length() time.Duration {
	return time.Duration(t.records[len(t.records)-1].Time * float64(time.Second))
}

// Replay returns an open loop that sends the trace's requests speed times as
// fast as they were recorded.
func (t *Trace) Replay(speed float64) Source { return &replay{trace: t, speed: speed} }

type replay struct {
	trace *Trace
	speed float64
	n     int
}

// Next implements Source.
func (r *replay) Next() Instant {
	if r.n == len(r.trace.records) {
		return Never
	}
	return Instant(math.Round(r.trace.records[r.n].Time / r.speed * 1e9))
}

// Pop implements Source. What the chain does not cover of the input is new.
func (r *replay) Pop(j *Job) {
	rec := &r.trace.records[r.n]
	id, left := uint64(0), rec.Input
	for i, piece := range rec.Chain {
		id = Mix(id, piece)
		n := Piece
		if len(rec.Lengths) > 0 {
			n = rec.Lengths[i]
		}
		n = min(n, left)
		j.Add(Segment{id, n})
		left -= n
	}
	id = Mix(id, uint64(r.n)|1<<63)
	j.Add(Segment{id, left})
	j.Output = max(rec.Output, 1)
	j.Answer = Mix(id, 1)
	j.Model = rec.Model
	r.n++
}

// Done implements Source.
func (r *replay) Done(*Job, Instant) {}

// ConvertMooncake rewrites a trace of the public Mooncake layout, a line of
// JSON each with timestamp (ms), input_length, output_length and hash_ids (one
// per 512 tokens), to the layout of ReadTrace. It returns how many requests it
// wrote. The error names the line.
func ConvertMooncake(r io.Reader, w io.Writer) (n int, err error) {
	out := bufio.NewWriter(w)
	e := json.NewEncoder(out)
	err = eachLine(r, func(line []byte) error {
		var m struct {
			Timestamp *float64 `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		if m.Timestamp == nil {
			return fmt.Errorf("no timestamp")
		}
		rec := Record{Time: *m.Timestamp / 1000, Chain: m.Hashes, Input: m.Input, Output: m.Output}
		if err := rec.valid(); err != nil {
			return err
		}
		n++
		return e.Encode(rec)
	})
	if err != nil {
		return n, err
	}
	return n, out.Flush()
}
