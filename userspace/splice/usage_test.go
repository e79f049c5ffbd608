package splice_test

import (
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/splice"
)

const (
	usageEvent = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n"
	tokenEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n"
	doneEvent  = "data: [DONE]\n\n"
	usageKept  = 1000 // USAGE_BYTES of abi.h
)

// ends are what a response is told of messages that may tell its usage.
type ends []string

func (e *ends) tell(end []byte) { *e = append(*e, string(end)) }

// asked has a response begun whose usage is wanted, and armed behind its head.
func (w *wire) asked(target, client net.Conn) (*splice.Response, *ends) {
	w.t.Helper()
	var told ends
	return w.behindHead(target, client, func(time.Duration) {}, told.tell), &told
}

// kept is what is left of a message: its last whole words.
func kept(message string) string {
	return message[len(message)-min(len(message)&^7, usageKept):]
}

// The kernel passes what may tell the usage as well, and the agent is told how it ends:
// of each such message, in order, where it asks and before it reads later bytes.
func TestUsageIsTold(t *testing.T) {
	const start = "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":9}}}\n\n"
	long := chunk("data: {\"text\":\"" + strings.Repeat("0123456789", 500) + "\",\"usage\":{\"prompt_tokens\":9}}\n\n")
	for name, tt := range map[string]struct{ messages, told []string }{
		"nothing":                       {[]string{chunk(tokenEvent), chunk(tokenEvent)}, nil},
		"at the end":                    {[]string{chunk(tokenEvent), chunk(usageEvent), chunk(doneEvent)}, []string{chunk(usageEvent)}},
		"in the first message":          {[]string{chunk(start), chunk(tokenEvent)}, []string{chunk(start)}},
		"behind the first token":        {[]string{chunk(tokenEvent) + chunk(usageEvent)}, []string{chunk(tokenEvent) + chunk(usageEvent)}},
		"in a token's chunk":            {[]string{chunk(tokenEvent), chunk(tokenEvent + usageEvent)}, []string{chunk(tokenEvent + usageEvent)}},
		"before the mark":               {[]string{chunk(tokenEvent), chunk(usageEvent) + chunk(doneEvent)}, []string{chunk(usageEvent) + chunk(doneEvent)}},
		"in the mark's chunk":           {[]string{chunk(tokenEvent), chunk(usageEvent + doneEvent)}, []string{chunk(usageEvent + doneEvent)}},
		"a whole answer in one message": {[]string{chunk(tokenEvent) + chunk(usageEvent) + chunk(doneEvent)}, []string{chunk(tokenEvent) + chunk(usageEvent) + chunk(doneEvent)}},
		"twice":                         {[]string{chunk(start), chunk(tokenEvent), chunk(usageEvent)}, []string{chunk(start), chunk(usageEvent)}},
		"a long message":                {[]string{chunk(tokenEvent), long}, []string{long}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			target, client := w.client()
			r, told := w.asked(target, client)
			for _, m := range tt.messages {
				w.move(w.server, client, m)
			}
			if len(*told) != 0 {
				t.Errorf("told before anybody looked: %q", *told)
			}
			w.move(w.server, w.backend, last)
			var want []string
			for _, m := range tt.told {
				want = append(want, kept(m))
			}
			if !slices.Equal(*told, want) {
				t.Errorf("told %q, want %q", *told, want)
			}
			w.move(target, client, last)
			w.outcome(r, splice.Spliced)
			c := w.counters()
			if n := c[bpf.Redirected].Events; n != uint64(len(tt.messages)) || c[bpf.ArmTaken].Events != 1 {
				t.Errorf("%d messages were redirected behind %d arms, want %d and 1", n, c[bpf.ArmTaken].Events, len(tt.messages))
			}
			if len(*told) != len(want) {
				t.Errorf("told %d times in all", len(*told))
			}
		})
	}
}

// Where nobody asks nobody is told, and where the message goes to the agent for another
// reason its bytes are all that there is.
func TestUsageIsNotTold(t *testing.T) {
	t.Run("not asked", func(t *testing.T) {
		w := newWire(t)
		target, client := w.client()
		r, _ := w.head(target, client)
		w.move(w.server, client, chunk(usageEvent))
		w.move(w.server, client, chunk(usageEvent))
		n := 0
		if err := w.set.UsageEnds(func(uint64, []byte) { n++ }); err != nil || n != 0 {
			t.Errorf("%d records, %v", n, err)
		}
		w.relay(target, client, last)
		w.outcome(r, splice.Spliced)
	})
	for name, tt := range map[string]struct {
		message string
		why     bpf.Reason
	}{
		"with the last chunk": {chunk(usageEvent) + last, bpf.PassLast},
		"half of it":          {chunk(usageEvent)[:20], bpf.PassPartial},
		"beyond the window":   {chunk(strings.Repeat("x", 40_000) + usageEvent), bpf.PassWindow},
		"a ping before it":    {chunk("event: ping\ndata: {}\n\n" + usageEvent), bpf.PassEvent},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			target, client := w.client()
			r, told := w.asked(target, client)
			w.move(w.server, w.backend, tt.message)
			if n := w.counters()[tt.why].Events; n != 1 {
				t.Errorf("%d messages are %s, want 1", n, tt.why)
			}
			if r.Abort(); len(*told) != 0 {
				t.Errorf("told %q", *told)
			}
		})
	}
	t.Run("over the credit", func(t *testing.T) {
		w := newWire(t)
		target, client := w.client()
		r, told := w.asked(target, client)
		message := chunk("data: " + strings.Repeat("x", 30_000) + "\n\n")
		for range int(splice.Default().Credit) / len(message) {
			w.move(w.server, client, message)
		}
		message = chunk(strings.Repeat("x", 30_000) + usageEvent)
		w.move(w.server, w.backend, message)
		if n := w.counters()[bpf.PassCredit].Events; n != 1 {
			t.Errorf("%d messages are over the credit, want 1", n)
		}
		if r.Abort(); len(*told) != 0 {
			t.Errorf("told %q", *told)
		}
	})
}

// Each response is told of its own: of those that go on at the same time, and of the
// next one on the same connections.
func TestUsagesAreNotMixed(t *testing.T) {
	w := newWire(t)
	type side struct {
		w              wire
		target, client net.Conn
		r              *splice.Response
		told           *ends
	}
	sides := make([]side, 3)
	for i := range sides {
		w.dial()
		s := &sides[i]
		s.w = *w
		s.target, s.client = w.client()
	}
	for round := range 3 {
		message := func(i, n int) string {
			return chunk("data: {\"usage\":{\"n\":" + strconv.Itoa(100*round+10*i+n) + "}}\n\n")
		}
		for i := range sides {
			s := &sides[i]
			s.r, s.told = s.w.asked(s.target, s.client)
		}
		for n := range 3 {
			for i := range sides {
				sides[i].w.move(sides[i].w.server, sides[i].client, message(i, n))
			}
			if n == 1 {
				w.s.CatchUp()
			}
		}
		for i := range sides {
			s := &sides[i]
			s.w.relay(s.target, s.client, last)
		}
		for i := range sides {
			s := &sides[i]
			if err := s.r.End(); err != nil {
				t.Error(err)
			}
			want := []string{kept(message(i, 0)), kept(message(i, 1)), kept(message(i, 2))}
			if !slices.Equal(*s.told, want) {
				t.Errorf("round %d, connection %d: told %q, want %q", round, i, *s.told, want)
			}
		}
	}
}

// An arm behind another one of the same response says the same.
func TestUsageBehindTheNextArm(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r, told := w.asked(target, client)
	body := 0
	for range 3 {
		w.move(w.server, client, chunk(usageEvent))
		w.relay(target, client, chunk(tokenEvent)[:5])
		w.relay(target, client, chunk(tokenEvent)[5:])
		body += len(tokenEvent)
		r.Flushed(int64(body))
	}
	w.move(w.server, client, chunk(usageEvent))
	w.relay(target, client, last)
	w.outcome(r, splice.Spliced)
	if n := w.counters()[bpf.ArmTaken].Events; n != 4 || len(*told) != 4 {
		t.Errorf("told %d times behind %d arms, want 4 and 4", len(*told), n)
	}
}

// The end of a response comes after what there is to tell, and nothing after the end.
func TestUsageIsToldBeforeTheEnd(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r, told := w.asked(target, client)
	w.move(w.server, client, chunk(usageEvent))
	if r.Abort(); len(*told) != 1 {
		t.Errorf("told %d times before the abort was over, want 1", len(*told))
	}

	w.dial()
	target, client = w.client()
	r, told = w.asked(target, client)
	if _, err := io.WriteString(w.server, chunk(usageEvent)); err != nil {
		t.Fatal(err)
	}
	r.Abort()
	n := len(*told)
	if w.s.CatchUp(); len(*told) != n {
		t.Error("told after the end")
	}
}

// A ring that is full costs the wake-up that it was to save: the message comes to the
// agent, which reads the ring and has the next one told.
func TestUsagesAreFull(t *testing.T) {
	size := os.Getpagesize()
	w := newWireOn(t, testutil.MapSet(t, loadWith(t, func(spec *ebpf.CollectionSpec) {
		spec.Maps[bpf.TautlineMapUsages].MaxEntries = uint32(size)
	}).TautlineMaps))
	target, client := w.client()
	r, told := w.asked(target, client)
	const record = 1024     // with the kernel's header
	room := size/record - 1 // the last one would fill it to the brim
	for range room {
		w.move(w.server, client, chunk(usageEvent))
	}
	w.relay(target, client, chunk(usageEvent))
	if c := w.counters()[bpf.PassUsage]; c.Events != 1 || c.Bytes != uint64(len(chunk(usageEvent))) {
		t.Errorf("%+v passed because the ring was full, want one message", c)
	}
	if len(*told) != room {
		t.Errorf("told %d times, want %d", len(*told), room)
	}
	r.Flushed(int64(len(usageEvent)))
	w.move(w.server, client, chunk(usageEvent))
	w.relay(target, client, last)
	w.outcome(r, splice.Spliced)
	if len(*told) != room+1 {
		t.Errorf("told %d times in all, want %d", len(*told), room+1)
	}
}

// Where the redirect fails behind the copy the agent has both, and no more than that.
func TestUsageWithoutATarget(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r, told := w.asked(target, client)
	w.move(w.server, client, chunk(tokenEvent))
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
	w.move(w.server, w.backend, chunk(usageEvent))
	if n := w.counters()[bpf.PassTarget].Events; n != 1 || len(*told) != 1 {
		t.Errorf("%d messages had no target, %d were told, want 1 and 1", n, len(*told))
	}
	r.Abort()
}
