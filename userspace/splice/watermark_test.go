package splice_test

import (
	"bufio"
	"flag"
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
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/splice"
)

// For a soak: go test ./userspace/splice -run Watermarks -streams 20000 -clients 400 -timeout 1h
var (
	streams = flag.Int("streams", 600, "watermarked streams in all")
	clients = flag.Int("clients", 60, "watermarked streams at a time")
)

// A plan is what both sides of a stream know beforehand: the client checks against
// it what the engine makes of it.
type plan struct{ seed uint64 }

func (p plan) rand() *rand.Rand { return rand.New(rand.NewPCG(p.seed, 1)) }

// chunks calls f with the data of each chunk until f returns false.
func (p plan) chunks(f func(i int, data string, r *rand.Rand) bool) {
	r := p.rand()
	n := 2 + r.IntN(60)
	for i := range n {
		size := 20 + r.IntN(400)
		switch r.IntN(40) {
		case 0:
			size = 20 + r.IntN(60_000) // some beyond the window
		case 1:
			size = 0 // as small as the watermark
		}
		if !f(i, token(strconv.FormatUint(p.seed, 36), i, size), r) {
			return
		}
	}
}

// usage is the event that tells whose stream it is, behind all chunks of data.
func (p plan) usage() string { return fmt.Sprintf("data: {\"usage\":{\"stream\":%d}}\n\n", p.seed) }

// engine sends the stream: several chunks in a send, a chunk in several, pauses.
func (p plan) engine(c net.Conn) bool {
	how := rand.New(rand.NewPCG(p.seed, 2)) // apart from the data, which must be the same everywhere
	if !send(c, head) {
		return false
	}
	if how.IntN(2) == 0 {
		time.Sleep(time.Duration(how.IntN(20000)) * time.Microsecond) // the prefill
	}
	var pending strings.Builder
	ok := true
	p.chunks(func(_ int, data string, _ *rand.Rand) bool {
		pending.WriteString(chunk(data))
		if how.IntN(10) == 0 {
			return true // with the next one
		}
		msg := pending.String()
		pending.Reset()
		if how.IntN(20) == 0 {
			cut := how.IntN(len(msg))
			ok = send(c, msg[:cut])
			msg = msg[cut:]
		}
		ok = ok && send(c, msg)
		switch how.IntN(8) {
		case 0:
			time.Sleep(time.Duration(how.IntN(4000)) * time.Microsecond)
		case 1, 2, 3:
			time.Sleep(200 * time.Microsecond)
		}
		return ok
	})
	for _, end := range []string{chunk(p.usage()), chunk(doneEvent), last} {
		if pending.Len() > 0 && how.IntN(3) > 0 {
			ok = ok && send(c, pending.String())
			pending.Reset()
		}
		pending.WriteString(end)
	}
	return ok && send(c, pending.String())
}

// verify reads a stream and reports the first byte that is not its own. Slow readers
// pause; a dying one leaves after some bytes and returns false.
func (p plan) verify(body io.Reader, die int) (whole bool, err error) {
	how := rand.New(rand.NewPCG(p.seed, 3))
	slow := how.IntN(10) == 0
	read := 0
	p.chunks(func(i int, data string, _ *rand.Rand) bool {
		if die > 0 && read > die {
			return false
		}
		got := make([]byte, len(data))
		n, e := io.ReadFull(body, got)
		read += n
		if e != nil {
			err = fmt.Errorf("stream %d chunk %d: after %d bytes: %w", p.seed, i, read, e)
			return false
		}
		if string(got) != data {
			err = fmt.Errorf("stream %d chunk %d: got %.60q, want %.60q", p.seed, i, got, data)
			return false
		}
		if slow && how.IntN(4) == 0 {
			time.Sleep(time.Duration(how.IntN(10)) * time.Millisecond)
		}
		return true
	})
	if err != nil || die > 0 && read > die {
		return false, err
	}
	rest, err := io.ReadAll(body)
	if err == nil && string(rest) != p.usage()+doneEvent {
		err = fmt.Errorf("stream %d: %.100q at its end", p.seed, rest)
	}
	return err == nil, err
}

// H15 and all: every client gets its own bytes, whole and in order, over many streams
// at a time with random sizes, sends, pauses, readers and departures, on connections
// that are used again. The agent sees the usage of each one, be it relayed or told.
func TestWatermarks(t *testing.T) {
	r := newRig(t)
	r.early = true
	var usages atomic.Int64
	r.usage = func(req *http.Request, seen string) {
		usages.Add(1)
		own := fmt.Sprintf(`"usage":{"stream":%s}`, strings.TrimPrefix(req.URL.Path, "/"))
		if n := strings.Count(seen, own); n == 0 || n != strings.Count(seen, `"usage"`) {
			t.Errorf("stream %s: the agent saw its own usage %d times, %d in all", req.URL.Path, n, strings.Count(seen, `"usage"`))
		}
	}
	engines := make([]*engine, 4)
	for i := range engines {
		engines[i] = newEngine(t, func(c net.Conn, req *http.Request) bool {
			seed, err := strconv.ParseUint(strings.TrimPrefix(req.URL.Path, "/"), 10, 64)
			return err == nil && plan{seed}.engine(c)
		})
	}
	var next atomic.Uint64
	var wg sync.WaitGroup
	var wholes, deaths atomic.Int64
	base := rand.Uint64N(1 << 40)
	t.Logf("seeds from %d", base)
	for range *clients {
		wg.Go(func() {
			var p *peer
			defer func() {
				if p != nil {
					p.Close()
				}
			}()
			for {
				n := next.Add(1)
				if n > uint64(*streams) || t.Failed() {
					return
				}
				pl := plan{base + n}
				die := 0
				if how := rand.New(rand.NewPCG(pl.seed, 4)); how.IntN(10) == 0 {
					die = 1 + how.IntN(5000)
				}
				if p == nil {
					c, err := net.Dial("tcp4", r.addr)
					if err != nil {
						t.Error(err)
						return
					}
					p = &peer{TCPConn: c.(*net.TCPConn), br: bufio.NewReader(c)}
				}
				_ = p.SetDeadline(time.Now().Add(2 * time.Minute)) // only ends a hang
				_, _ = fmt.Fprintf(p, "GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", pl.seed, engines[n%4].addr)
				resp, err := http.ReadResponse(p.br, nil)
				if err != nil {
					t.Errorf("stream %d: %v", pl.seed, err)
					return
				}
				if resp.StatusCode != http.StatusOK {
					t.Errorf("stream %d: %s", pl.seed, resp.Status)
					return
				}
				whole, err := pl.verify(resp.Body, die)
				if err != nil {
					t.Error(err)
					return
				}
				if whole {
					wholes.Add(1)
					continue
				}
				deaths.Add(1)
				if n%2 == 0 {
					_ = p.SetLinger(0)
				}
				p.Close()
				p = nil
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.Log(r.counts())
		return
	}
	if n := r.ended(splice.Damaged, splice.Spliced); n != 0 {
		t.Errorf("%d streams were damaged", n)
	}
	testutil.Eventually(t, "all flows to end", func() bool {
		r.tr.CloseIdleConnections()
		live, err := r.set.Live()
		return err == nil && len(live) == 0
	})
	c := r.counts()
	t.Logf("%d whole, %d left; redirected %d of %d messages, %d first tokens, arms %d taken %d missed, pass: credit %d window %d partial %d",
		wholes.Load(), deaths.Load(), c[bpf.Redirected].Events, messages(c), r.firsts.Load(), c[bpf.ArmTaken].Events, c[bpf.ArmMissed].Events,
		c[bpf.PassCredit].Events, c[bpf.PassWindow].Events, c[bpf.PassPartial].Events)
	if n := usages.Load(); n < wholes.Load() {
		t.Errorf("%d streams were read to their end, want %d at least", n, wholes.Load())
	}
	if c[bpf.Redirected].Events == 0 || r.firsts.Load() == 0 {
		t.Error("nothing was redirected: the test proves nothing")
	}
}

func messages(c map[bpf.Reason]bpf.Counter) uint64 {
	var n uint64
	for why := bpf.Redirected; why < bpf.ReasonCount; why++ {
		n += c[why].Events
	}
	return n
}

// H5: members of a sockmap keep their wake-ups. Go's poller is edge-triggered: one
// that is lost would hang here.
func TestPingPongOnClaimedSockets(t *testing.T) {
	r := newRig(t)
	ln, err := splice.ListenConfig().Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var wg sync.WaitGroup
	const pairs, rounds = 4, 5000
	for range pairs {
		c, err := r.s.DialBackend(t.Context(), "tcp4", ln.Addr().String(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, c := range []net.Conn{c, s} {
			if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // only ends a hang
				t.Fatal(err)
			}
		}
		wg.Go(func() {
			b := make([]byte, 1)
			for range rounds {
				if _, err := io.ReadFull(s, b); err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Write(b); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			b := make([]byte, 1)
			for i := range rounds {
				b[0] = byte(i)
				if _, err := c.Write(b); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(c, b); err != nil || b[0] != byte(i) {
					t.Errorf("round %d: %d, %v", i, b[0], err)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := r.counts()[bpf.ClaimTaken].Events; n != pairs {
		t.Errorf("%d sockets were claimed, want %d", n, pairs)
	}
}
