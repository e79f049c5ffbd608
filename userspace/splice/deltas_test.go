package splice_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/userspace/pin"
	"github.com/tautline/tautline/userspace/splice"
)

// stamp is what the rig tags ids with.
const stamp = "site.0123abcd.."

// rewritten is what a client must get of a stream.
func rewritten(stream string) string {
	r := pin.NewRewriter(stamp, pin.FormSSE)
	return string(r.Finish(r.Append(nil, []byte(stream))))
}

// event is an event of the response's stream. Those that embed the response hold
// its id; the text of a delta may look like one.
func event(id, name string, seq int, text string) string {
	data := fmt.Sprintf(`{"type":"response.%s","sequence_number":%d,"item_id":"msg_%s"`, name, seq, id)
	switch name {
	case "created", "queued", "in_progress", "completed", "incomplete", "failed":
		data += fmt.Sprintf(`,"response":{"object":"response","id":"resp_%s","metadata":{"id":"resp_mine"},"previous_response_id":"resp_before_%s"}`, id, id)
	}
	if strings.HasSuffix(name, ".delta") {
		data += `,"delta":` + strconv.Quote("resp_"+id+" "+text)
	}
	return "event: response." + name + "\ndata: " + data + "}\n\n"
}

// answer is a Responses stream with n deltas, event by event.
func answerOf(id string, n int) []string {
	var all []string
	add := func(name string) { all = append(all, event(id, name, len(all), "")) }
	for _, name := range []string{"queued", "created", "in_progress", "output_item.added", "content_part.added"} {
		add(name)
	}
	for i := range n {
		all = append(all, event(id, "output_text.delta", len(all), strings.Repeat("x", i%50)))
	}
	for _, name := range []string{"output_text.done", "content_part.done", "output_item.done", "incomplete", "failed", "completed"} {
		add(name)
	}
	return all
}

// play returns a script that sends each event as its own chunk and send.
func play(events []string) script {
	return func(c net.Conn, _ *http.Request) bool {
		ok := send(c, head)
		for i, e := range events {
			ok = ok && send(c, chunk(e))
			if i == 0 {
				firstPause()
			}
			pause()
		}
		return ok && send(c, last)
	}
}

// The kernel carries the deltas of a Responses stream, the agent the rest; the ids
// in it are tagged, and the client gets the same bytes as without a splice.
func TestResponsesStream(t *testing.T) {
	r := newRig(t)
	r.stamp = stamp
	const n = 200
	events := answerOf("abc", n)
	want := rewritten(strings.Join(events, ""))
	if got := strings.Count(want, "resp_"+stamp); got != 12 {
		t.Fatalf("%d ids are tagged, want two in each of the six events that embed the response", got)
	}
	e := newEngine(t, play(events))
	p := r.dial(t)
	for range 3 { // both connections are used again
		p.ask(t, e, "/")
		same(t, p.answer(t), want)
	}
	c := r.counts()
	t.Logf("%d of %d deltas were redirected in %d arms; %d other events were passed out of a splice",
		c[bpf.Redirected].Events, 3*n, c[bpf.ArmTaken].Events, c[bpf.PassEvent].Events)
	if c[bpf.Redirected].Events < 3*n/2 {
		t.Errorf("%d of %d deltas were redirected", c[bpf.Redirected].Events, 3*n)
	}
	if c[bpf.Redirected].Events > 3*n {
		t.Error("events other than deltas were redirected")
	}
	if c[bpf.PassEvent].Events == 0 {
		t.Error("no event was passed out of a splice: the test proves little")
	}
	if got := r.ended(splice.Ended, splice.Spliced); got != 3 {
		t.Errorf("%d responses were spliced, want 3", got)
	}

	r.unspliced = true
	p.ask(t, e, "/")
	same(t, p.answer(t), want)
	if got := r.ended(splice.Ended, splice.Rewritten); got != 1 {
		t.Errorf("%d responses were not spliced because they are rewritten, want 1", got)
	}
}

// One delta between two other events each time: every splice carries one message,
// and the stream goes on being spliced.
func TestDeltasThatTakeTurns(t *testing.T) {
	r := newRig(t)
	r.stamp = stamp
	var events []string
	const n = 100
	for i := range n {
		events = append(events, event("abc", "output_text.delta", 2*i, ""), event("abc", "in_progress", 2*i+1, ""))
	}
	e := newEngine(t, play(events))
	p := r.dial(t)
	p.ask(t, e, "/")
	same(t, p.answer(t), rewritten(strings.Join(events, "")))
	c := r.counts()
	t.Logf("%d of %d deltas redirected", c[bpf.Redirected].Events, n)
	if got := c[bpf.Redirected].Events; got < n/4 || got > n {
		t.Errorf("%d of %d deltas were redirected", got, n)
	}
}

// What is not one named delta event in a chunk of its own goes through the agent,
// and such a response counts as rewritten.
func TestEventsThatMustPassTheAgent(t *testing.T) {
	delta := event("abc", "output_text.delta", 1, "")
	whole := event("abc", "in_progress", 1, "")
	unnamed := func(e string) string { return e[strings.Index(e, "\n")+1:] }
	for name, e := range map[string]string{
		"whole objects":   whole,
		"unnamed":         unnamed(whole),
		"unnamed deltas":  unnamed(delta),
		"two deltas":      delta + delta,
		"delta and whole": delta + whole,
		"CRLF":            strings.ReplaceAll(delta, "\n", "\r\n"),
		"large":           event("abc", "output_text.delta", 1, strings.Repeat("x", 5000)),
		"comments":        ": ping\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.stamp = stamp
			events := []string{event("abc", "created", 0, "")}
			for range 30 {
				events = append(events, e)
			}
			p := r.dial(t)
			p.ask(t, newEngine(t, play(events)), "/")
			same(t, p.answer(t), rewritten(strings.Join(events, "")))
			c := r.counts()
			if c[bpf.Redirected].Events != 0 {
				t.Errorf("%d messages were redirected", c[bpf.Redirected].Events)
			}
			if c[bpf.ArmTaken].Events == 0 && name != "CRLF" {
				t.Error("the kernel was never armed: the test proves nothing")
			}
			if name != "CRLF" && r.ended(splice.Ended, splice.Rewritten) != 1 {
				t.Error("not counted as rewritten")
			}
		})
	}
}

// A medley is a Responses stream that an engine writes as oddly as it may: what is
// sent is known from the seed, how from another.
type medley struct{ seed uint64 }

func (m medley) events() []string {
	r := rand.New(rand.NewPCG(m.seed, 1))
	id := strconv.FormatUint(m.seed, 36)
	all := []string{event(id, "created", 0, "")}
	for i := range 5 + r.IntN(80) {
		e := event(id, "output_text.delta", i+1, strings.Repeat(string(rune('a'+i%26)), r.IntN(300)))
		switch r.IntN(60) {
		case 0, 1, 2:
			e = event(id, "in_progress", i+1, "")
		case 3:
			e = event(id, "output_item.done", i+1, "")
		case 4:
			e = e[strings.Index(e, "\n")+1:] // no name
		case 5:
			e = strings.ReplaceAll(e, "\n", "\r\n")
		case 6:
			e = event(id, "output_text.delta", i+1, strings.Repeat("x", r.IntN(8000)))
		case 7:
			e = strings.Replace(e, "\n", "\nevent: response.failed\n", 1) // its last name counts
		case 8:
			e = ": comment\n\n"
		}
		all = append(all, e)
	}
	return append(all, event(id, "completed", len(all), ""))
}

// engine sends the stream: an event a chunk mostly, several or a part of one at times.
func (m medley) engine(c net.Conn) bool {
	how := rand.New(rand.NewPCG(m.seed, 2))
	var data, pending string
	ok := send(c, head)
	flush := func(msg string) {
		if how.IntN(40) == 0 {
			cut := how.IntN(len(msg))
			ok = ok && send(c, msg[:cut])
			msg = msg[cut:]
		}
		ok = ok && send(c, msg)
	}
	for _, e := range m.events() {
		data += e
		keep := ""
		switch how.IntN(30) {
		case 0:
			continue // with the next one in one chunk
		case 1: // a chunk may end anywhere
			cut := 1 + how.IntN(len(data)-1)
			data, keep = data[:cut], data[cut:]
		}
		pending += chunk(data)
		data = keep
		if how.IntN(20) == 0 {
			continue // with the next one in one send
		}
		flush(pending)
		pending = ""
		switch how.IntN(8) {
		case 0:
			time.Sleep(time.Duration(how.IntN(4000)) * time.Microsecond)
		case 1, 2, 3, 4:
			time.Sleep(300 * time.Microsecond)
		}
	}
	if data != "" {
		pending += chunk(data)
	}
	flush(pending + last)
	return ok
}

// Every client of a rewritten stream gets its own bytes, whole, in order and tagged,
// however deltas and other events are mixed, framed and sent.
func TestDeltaWatermarks(t *testing.T) {
	r := newRig(t)
	r.stamp = stamp
	e := newEngine(t, func(c net.Conn, req *http.Request) bool {
		seed, err := strconv.ParseUint(strings.TrimPrefix(req.URL.Path, "/"), 10, 64)
		return err == nil && medley{seed}.engine(c)
	})
	base := rand.Uint64N(1 << 40)
	t.Logf("seeds from %d", base)
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range *clients {
		wg.Go(func() {
			c, err := net.Dial("tcp4", r.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			br := bufio.NewReader(c)
			for {
				n := next.Add(1)
				if n > uint64(*streams) || t.Failed() {
					return
				}
				m := medley{base + n}
				_ = c.SetDeadline(time.Now().Add(2 * time.Minute)) // only ends a hang
				_, _ = fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", m.seed, e.addr)
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Errorf("stream %d: %v", m.seed, err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				if want := rewritten(strings.Join(m.events(), "")); err != nil || string(got) != want {
					t.Errorf("stream %d: %d bytes, %v, want %d:\n%.3000q\nwant\n%.3000q", m.seed, len(got), err, len(want), got, want)
					return
				}
			}
		})
	}
	wg.Wait()
	c := r.counts()
	t.Logf("redirected %d of %d messages, arms %d taken %d missed, pass: event %d partial %d",
		c[bpf.Redirected].Events, messages(c), c[bpf.ArmTaken].Events, c[bpf.ArmMissed].Events,
		c[bpf.PassEvent].Events, c[bpf.PassPartial].Events)
	if n := r.ended(splice.Damaged, splice.Spliced); n != 0 {
		t.Errorf("%d streams were damaged", n)
	}
	if c[bpf.Redirected].Events == 0 || c[bpf.PassEvent].Events == 0 {
		t.Error("nothing was redirected, or nothing passed: the test proves nothing")
	}
}
