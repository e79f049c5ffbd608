package splice_test

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/splice"
)

// told is what a response hears of its first token.
type told struct {
	times int
	ago   time.Duration
}

// head has a response begun of which only the head is delivered, and armed.
func (w *wire) head(target, client net.Conn) (*splice.Response, *told) {
	w.t.Helper()
	var n told
	return w.behindHead(target, client, func(ago time.Duration) { n.times, n.ago = n.times+1, ago }, nil), &n
}

// behindHead delivers a response's head and has it armed there, with whom it tells of
// its first token and of its usage, nil for nobody.
func (w *wire) behindHead(target, client net.Conn, first func(time.Duration), usage func([]byte)) *splice.Response {
	w.t.Helper()
	w.move(w.backend, w.server, askWire)
	w.relay(target, client, head)
	r := w.s.Begin(target, w.backend, splice.ResponseInfo{
		ClientHTTP11: true, BackendChunked: true, ClientChunked: true, FirstToken: first, Usage: usage,
	})
	r.Flushed(0)
	return r
}

// The kernel takes the first token too, tells of it where it is asked, once, and
// lets what follows pass without a look at it. Each response hears of its own.
func TestFirstToken(t *testing.T) {
	w := newWire(t)
	for _, first := range []string{
		chunk("data: {}\n\n"),
		chunk("event: message_start\ndata: {}\n\n"),
		chunk("data: {}\n\ndata: {}\n\n") + chunk("data: {}\n\n"),
	} {
		target, client := w.client()
		begun := time.Now()
		r, heard := w.head(target, client)
		if w.s.CatchUp(); heard.times != 0 {
			t.Fatal("told before there was a token")
		}
		w.move(w.server, client, first)
		w.s.CatchUp()
		if heard.times != 1 || heard.ago < 0 || heard.ago > time.Since(begun) {
			t.Errorf("%q: told %d times, %v ago", first, heard.times, heard.ago)
		}
		w.move(w.server, client, chunk(": comment\n\n"))
		w.move(w.server, client, chunk("data: {}\n\n"))
		w.relay(target, client, last)
		if err := r.End(); err != nil {
			t.Error(err)
		}
		if w.s.CatchUp(); heard.times != 1 {
			t.Errorf("%q: told %d times in all", first, heard.times)
		}
	}
	c := w.counters()
	if c[bpf.ArmTaken].Events != 3 || c[bpf.Redirected].Events != 9 || c[bpf.PassLast].Events != 3 {
		t.Errorf("%d arms, %d redirected, %d last chunks", c[bpf.ArmTaken].Events, c[bpf.Redirected].Events, c[bpf.PassLast].Events)
	}
}

// The wait for the first token is no gap between chunks: it is the prefill.
func TestPrefillIsNoGap(t *testing.T) {
	w := newWire(t)
	if err := w.set.PutBackend(0, maps.Backend{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	target, client := w.client()
	r, _ := w.head(target, client)
	for n := range uint64(3) {
		w.move(w.server, client, chunk("data: {}\n\n"))
		l, ok, err := w.set.Latency(0)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if l.Chunks != n+1 || l.Count() != n || (l.Sum > 0) != (n > 0) {
			t.Errorf("%d chunks and %d gaps, %v in all; want %d and %d", l.Chunks, l.Count(), l.Sum, n+1, n)
		}
	}
	r.Abort()
}

// What comes before the first token, or is cut, comes to the agent; nobody is told.
func TestNoFirstToken(t *testing.T) {
	for name, tt := range map[string]struct {
		message string
		want    bpf.Reason
	}{
		"comment":        {chunk(": ping\n\n"), bpf.PassEvent},
		"ping":           {chunk("event: ping\ndata: {\"type\": \"ping\"}\n\n"), bpf.PassEvent},
		"another field":  {chunk("retry: 1000\n\n"), bpf.PassEvent},
		"not an event":   {chunk("first"), bpf.PassEvent},
		"half a chunk":   {"c\r\ndata: ", bpf.PassPartial},
		"at once an end": {last, bpf.PassLast},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			target, client := w.client()
			r, heard := w.head(target, client)
			before := w.counters()[tt.want].Events
			w.relay(target, client, tt.message)
			if n := w.counters()[tt.want].Events - before; n != 1 {
				t.Errorf("%d messages are %s, want 1", n, tt.want)
			}
			r.Abort()
			if w.s.CatchUp(); heard.times != 0 {
				t.Errorf("told %d times", heard.times)
			}
		})
	}
}

// The end of a response, however it comes, is never heard of before its first token.
func TestFirstTokenIsToldBeforeTheEnd(t *testing.T) {
	t.Run("read", func(t *testing.T) {
		w := newWire(t)
		target, client := w.client()
		r, heard := w.head(target, client)
		w.move(w.server, client, chunk("data: {}\n\n"))
		w.move(w.server, w.backend, last)
		if heard.times != 1 {
			t.Errorf("told %d times when later bytes were read", heard.times)
		}
		w.move(target, client, last)
		w.outcome(r, splice.Spliced)
	})
	t.Run("abort", func(t *testing.T) {
		w := newWire(t)
		target, client := w.client()
		r, heard := w.head(target, client)
		w.move(w.server, client, chunk("data: {}\n\n"))
		if r.Abort(); heard.times != 1 {
			t.Errorf("told %d times", heard.times)
		}
	})
	t.Run("a token after the end", func(t *testing.T) {
		w := newWire(t)
		target, client := w.client()
		r, heard := w.head(target, client)
		if _, err := io.WriteString(w.server, chunk("data: {}\n\n")); err != nil {
			t.Fatal(err)
		}
		r.Abort()
		n := heard.times
		if w.s.CatchUp(); heard.times != n {
			t.Error("told after the end")
		}
	})
}

// Bytes that were on their way when the head was relayed: the agent relays them, and
// arms again behind the first token.
func TestFirstTokenUnderWay(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	w.move(w.backend, w.server, askWire)
	w.relay(target, client, head)
	first := chunk("data: {}\n\n")
	if _, err := io.WriteString(w.server, first); err != nil {
		t.Fatal(err)
	}
	heard := 0
	r := w.s.Begin(target, w.backend, splice.ResponseInfo{
		ClientHTTP11: true, BackendChunked: true, ClientChunked: true,
		FirstToken: func(time.Duration) { heard++ },
	})
	r.Flushed(0)
	if _, err := io.WriteString(w.server, first); err != nil {
		t.Fatal(err)
	}
	if n := w.counters()[bpf.ArmMissed].Events; n != 1 {
		t.Errorf("%d arms missed, want 1", n)
	}
	w.expect(w.backend, first+first)
	w.move(target, client, first+first)
	r.Flushed(20)
	w.move(w.server, client, first)
	w.relay(target, client, last)
	w.outcome(r, splice.Spliced)
	if heard != 0 {
		t.Errorf("told %d times of a token that the agent had seen", heard)
	}
}

// A ring that nobody reads gets full: the streams go on, and the agent sees their
// ends as ever.
func TestFirstTokensAreLost(t *testing.T) {
	size := os.Getpagesize()
	w := newWireOn(t, testutil.MapSet(t, loadWith(t, func(spec *ebpf.CollectionSpec) {
		spec.Maps[bpf.TautlineMapFirstTokens].MaxEntries = uint32(size)
	}).TautlineMaps))
	const record = 8 + 16 // with the kernel's header
	n := size/record + 10
	var rs []*splice.Response
	var all []*told
	for range n {
		target, client := w.client()
		r, heard := w.head(target, client)
		w.move(w.server, client, chunk("data: {}\n\n"))
		rs, all = append(rs, r), append(all, heard)
		w.dial()
	}
	if got := w.counters()[bpf.Redirected].Events; got != uint64(n) {
		t.Errorf("%d first tokens were redirected, want %d", got, n)
	}
	w.s.CatchUp()
	times := 0
	for i, r := range rs {
		r.Abort()
		if all[i].times > 1 {
			t.Errorf("response %d was told %d times", i, all[i].times)
		}
		times += all[i].times
	}
	if times < n-20 || times >= n {
		t.Errorf("told of %d of %d: is the ring not full?", times, n)
	}
	if lost := w.counters()[bpf.FirstLost].Events; lost != uint64(n-times) {
		t.Errorf("%d first tokens are counted as lost, want %d", lost, n-times)
	}
}
