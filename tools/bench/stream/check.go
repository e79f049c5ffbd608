package stream

import (
	"bytes"
	"fmt"
	"time"
)

// Faults counts what was wrong with what a client got. The zero value is a
// stream that was exact.
type Faults struct {
	Lost      int `json:"lost,omitempty"`      // events that never came
	Doubled   int `json:"doubled,omitempty"`   // events that came again
	Reordered int `json:"reordered,omitempty"` // events that came after a later one
	Foreign   int `json:"foreign,omitempty"`   // events of another response
	Damaged   int `json:"damaged,omitempty"`   // bytes that nobody sent like this
	Truncated int `json:"truncated,omitempty"` // responses that ended before their end
}

// Any says whether something was wrong.
func (f Faults) Any() bool { return f != Faults{} }

// Add adds g to f.
func (f *Faults) Add(g Faults) {
	f.Lost += g.Lost
	f.Doubled += g.Doubled
	f.Reordered += g.Reordered
	f.Foreign += g.Foreign
	f.Damaged += g.Damaged
	f.Truncated += g.Truncated
}

func (f Faults) String() string {
	if !f.Any() {
		return "exact"
	}
	return fmt.Sprintf("%d lost, %d doubled, %d reordered, %d foreign, %d damaged, %d truncated",
		f.Lost, f.Doubled, f.Reordered, f.Foreign, f.Damaged, f.Truncated)
}

// Chunk is an event that arrived where and as it should.
type Chunk struct {
	Seq     uint32 // 0 = the role, then the tokens, then the finish
	Latency time.Duration
	Wire    int // bytes as one HTTP chunk
}

// maxGap bounds what is remembered of events that have not come. A number
// further ahead is a damaged number.
const maxGap = 1 << 16

// Checker compares the body of one response, byte for byte, with what its Spec
// says the server sends. Not safe for concurrent use.
type Checker struct {
	spec     Spec
	next     uint32              // number of the event that should come now
	missing  map[uint32]struct{} // passed over so far
	rest     []byte              // an event's beginning
	want     []byte              // scratch
	finished bool                // the finish came
	done     bool                // the end marker came
	faults   Faults
	first    string
}

// NewChecker returns a checker of one response.
func NewChecker(s Spec) *Checker { return &Checker{spec: s} }

// Reset makes c ready for another response and keeps its storage.
func (c *Checker) Reset(s Spec) {
	*c = Checker{spec: s, rest: c.rest[:0], want: c.want[:0]}
}

// Feed takes decoded body bytes that were read at time at (CLOCK_MONOTONIC,
// nanoseconds), and calls each for every event that is right.
func (c *Checker) Feed(b []byte, at int64, each func(Chunk)) {
	if len(c.rest) > 0 {
		c.rest = append(c.rest, b...)
		n := c.events(c.rest, at, each)
		c.rest = append(c.rest[:0], c.rest[n:]...)
		c.bound()
		return
	}
	n := c.events(b, at, each)
	c.rest = append(c.rest, b[n:]...)
	c.bound()
}

// bound drops a beginning that is longer than any event.
func (c *Checker) bound() {
	if len(c.rest) > c.spec.Bytes+MinBytes+c.spec.dialect().maxTail() {
		c.fault(&c.faults.Damaged, "%d bytes without an event's end: %.60q", len(c.rest), c.rest)
		c.rest = c.rest[:0]
	}
}

// Close says that the body ended and returns all faults and what the first was.
func (c *Checker) Close() (Faults, string) {
	if len(c.rest) > 0 {
		c.fault(&c.faults.Damaged, "%d bytes after the last whole event", len(c.rest))
		c.rest = c.rest[:0]
	}
	if !c.done {
		c.fault(&c.faults.Truncated, "the body ended after event %d", int64(c.next)-1)
	}
	if n := len(c.missing); n > 0 {
		c.faults.Lost += n
		c.missing = nil
	}
	return c.faults, c.first
}

// events checks the whole events of b and returns how many bytes they are.
func (c *Checker) events(b []byte, at int64, each func(Chunk)) (used int) {
	for {
		i := bytes.Index(b[used:], []byte(eventEnd))
		if i < 0 {
			return used
		}
		event := b[used : used+i+len(eventEnd)]
		used += len(event)
		c.event(event, at, each)
	}
}

func (c *Checker) event(event []byte, at int64, each func(Chunk)) {
	if c.done {
		c.fault(&c.faults.Damaged, "an event after the end: %.60q", event)
		return
	}
	d := c.spec.dialect()
	if string(event) == d.done {
		c.done = true
		if !c.finished {
			c.fault(&c.faults.Lost, "the end came without the finish, after event %d", int64(c.next)-1)
		}
		return
	}
	m, ok := d.mark(event)
	switch {
	case !ok:
		c.fault(&c.faults.Damaged, "no watermark in %.60q", event)
		return
	case m.stream != c.spec.Stream:
		c.fault(&c.faults.Foreign, "event %d of response %d", m.seq, m.stream)
		return
	case m.seq > c.next+maxGap:
		c.fault(&c.faults.Damaged, "event %d after event %d", m.seq, int64(c.next)-1)
		return
	}
	inOrder := c.place(m.seq)
	finish, ok := c.whole(event, m)
	if !ok {
		c.fault(&c.faults.Damaged, "event %d is not what was sent: %.300q", m.seq, event)
		return
	}
	if !inOrder {
		return
	}
	if c.finished {
		c.fault(&c.faults.Damaged, "event %d came after the finish", m.seq)
		return
	}
	c.finished = finish
	c.done = finish && d.done == ""
	each(Chunk{Seq: m.seq, Latency: time.Duration(at - m.stamp), Wire: wireBytes(len(event))})
}

// place puts a number into the order and says whether it came when it should.
func (c *Checker) place(seq uint32) bool {
	switch {
	case seq == c.next:
		c.next++
		return true
	case seq > c.next:
		c.note("event %d came after event %d", seq, int64(c.next)-1)
		if c.missing == nil {
			c.missing = map[uint32]struct{}{}
		}
		for ; c.next < seq; c.next++ {
			c.missing[c.next] = struct{}{}
		}
		c.next++
		return true
	}
	if _, late := c.missing[seq]; late {
		delete(c.missing, seq)
		c.fault(&c.faults.Reordered, "event %d came late", seq)
		return false
	}
	c.fault(&c.faults.Doubled, "event %d came again", seq)
	return false
}

// whole says whether every byte of an event is right, and whether it is the finish.
func (c *Checker) whole(event []byte, m mark) (finish, ok bool) {
	d := c.spec.dialect()
	c.want = d.event(c.want[:0], m, c.spec.Bytes)
	if bytes.Equal(event, c.want) {
		return false, int64(m.seq) <= int64(c.spec.Tokens)
	}
	c.want = d.end(c.want[:0], m)
	return true, bytes.Equal(event, c.want)
}

func (c *Checker) fault(count *int, format string, a ...any) {
	*count++
	c.note(format, a...)
}

func (c *Checker) note(format string, a ...any) {
	if c.first == "" {
		c.first = fmt.Sprintf("response %d: ", c.spec.Stream) + fmt.Sprintf(format, a...)
	}
}
