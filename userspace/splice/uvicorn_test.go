package splice_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
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

// uvicornEnv names an interpreter that has uvicorn, uvloop, httptools and h11: what
// vLLM and SGLang serve with. `make test-uvicorn` sets it.
const uvicornEnv = "UVICORN_PYTHON"

// A uvicorn is testdata/uvicorn_engine.py in a process of its own.
type uvicorn struct {
	engine
	pid int

	mu   sync.Mutex
	left map[string]time.Time // streams whose clients it knows to have left
}

func startUvicorn(t *testing.T, loop, protocol string) *uvicorn {
	t.Helper()
	cmd := exec.Command(os.Getenv(uvicornEnv), "testdata/uvicorn_engine.py", loop, protocol)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u := &uvicorn{pid: cmd.Process.Pid, left: map[string]time.Time{}}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("uvicorn does not start: %v", cmd.Wait())
	}
	u.addr = "127.0.0.1:" + lines.Text()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "left "); ok {
				u.mu.Lock()
				u.left[name] = time.Now()
				u.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		in.Close() // would end it in order, were it not for streams that a failed test has left
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return u
}

// told waits until the server knows that the client of a stream has left, and
// returns when it came to know.
func (u *uvicorn) told(t *testing.T, name string) (at time.Time) {
	t.Helper()
	testutil.Eventually(t, "uvicorn to be told that a client has left", func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		var ok bool
		at, ok = u.left[name]
		return ok
	})
	return at
}

// uvicornToken is the i-th token of a stream, as the server makes it.
func uvicornToken(name, i int, large bool) string {
	size := 20 + (name*31+i*97)%400
	if (name+i)%41 == 0 {
		size = 20000 + (name*7+i*997)%40000
	}
	if large {
		size = 1000
	}
	return token(strconv.Itoa(name), i, size)
}

func uvicornTokens(name, n int, large bool) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(uvicornToken(name, i, large))
	}
	return b.String()
}

// What SPLICE promises holds behind the servers that real engines run on.
func TestUvicorn(t *testing.T) {
	python := os.Getenv(uvicornEnv)
	if python == "" {
		t.Skipf("needs %s, an interpreter with uvicorn, uvloop, httptools and h11", uvicornEnv)
	}
	if out, err := exec.Command(python, "-c", "import uvicorn, uvloop, httptools, h11").CombinedOutput(); err != nil {
		t.Skipf("%s=%s lacks what it needs: %v: %s", uvicornEnv, python, err, out)
	}
	for _, how := range [][2]string{{"uvloop", "httptools"}, {"asyncio", "httptools"}, {"uvloop", "h11"}} {
		t.Run(how[0]+" "+how[1], func(t *testing.T) {
			t.Run("watermarks", func(t *testing.T) { uvicornWatermarks(t, startUvicorn(t, how[0], how[1])) })
			t.Run("slow reader", func(t *testing.T) { uvicornSlowReader(t, startUvicorn(t, how[0], how[1])) })
			t.Run("leaving", func(t *testing.T) { uvicornLeaving(t, startUvicorn(t, how[0], how[1])) })
		})
	}
}

// Every client gets its own bytes on connections that are used again, while others
// leave.
func uvicornWatermarks(t *testing.T, u *uvicorn) {
	r := newRig(t)
	r.early = true
	var next, wholes, deaths atomic.Int64
	var wg sync.WaitGroup
	for range *clients {
		wg.Go(func() {
			var p *peer
			for !t.Failed() {
				name := int(next.Add(1))
				if name > *streams {
					break
				}
				if p == nil {
					p = r.dial(t)
				}
				n := 2 + name%60
				want := uvicornTokens(name, n, false)
				p.ask(t, &u.engine, fmt.Sprintf("/%d?n=%d&kind=mixed", name, n))
				resp, err := http.ReadResponse(p.br, nil)
				if err != nil {
					t.Errorf("stream %d: %v", name, err)
					return
				}
				dies := name%10 == 0
				if dies {
					want = want[:len(want)/2]
				}
				got := make([]byte, len(want))
				if k, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
					t.Errorf("stream %d: wrong within the first %d of %d bytes: %v", name, k, len(want), err)
					return
				}
				if dies {
					deaths.Add(1)
					if name%20 == 0 {
						_ = p.SetLinger(0)
					}
					p.Close()
					p = nil
					continue
				}
				if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
					t.Errorf("stream %d: %d bytes behind its end: %v", name, len(rest), err)
					return
				}
				wholes.Add(1)
			}
			if p != nil {
				p.Close()
			}
		})
	}
	wg.Wait()
	c := r.counts()
	if r.firsts.Load() == 0 {
		t.Error("no first token passed in the kernel, though the head comes before it")
	}
	t.Logf("%d whole, %d left; %d of %d messages redirected, %d first tokens, %d connections to the server", wholes.Load(), deaths.Load(),
		c[bpf.Redirected].Events, messages(c), r.firsts.Load(), c[bpf.ClaimTaken].Events)
	if n := r.ended(splice.Damaged, splice.Spliced); n != 0 {
		t.Errorf("%d streams were damaged", n)
	}
	if c[bpf.Redirected].Events == 0 {
		t.Error("nothing was redirected: the test proves nothing")
	}
	if most := uint64(*clients) + uint64(deaths.Load()); c[bpf.ClaimTaken].Events > most {
		t.Errorf("%d connections to the server for %d clients and %d departures: they are not used again",
			c[bpf.ClaimTaken].Events, *clients, deaths.Load())
	}
}

// A client that sleeps in a large stream costs bounded memory, and the server sleeps
// too; then every byte comes.
func uvicornSlowReader(t *testing.T, u *uvicorn) {
	r := newRig(t)
	r.early = true
	p := r.dial(t)
	if err := p.SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	const n = 40_000 // more than what all buffers take
	p.ask(t, &u.engine, fmt.Sprintf("/1?n=%d&kind=large", n))
	body := p.open(t)
	got := make([]byte, 100_000)
	if _, err := io.ReadFull(body, got); err != nil {
		t.Fatal(err)
	}
	if r.counts()[bpf.Redirected].Events == 0 {
		t.Fatal("nothing was redirected")
	}
	quiet(t, r, u.pid)
	const nap = 2 * time.Second
	before := ticks(t, u.pid)
	time.Sleep(nap)
	used := ticks(t, u.pid) - before
	var kept uint64
	c := r.counts()
	for why := bpf.Redirected; why < bpf.ReasonCount; why++ {
		kept += c[why].Bytes
	}
	t.Logf("the server used %v of CPU in %v beside a client that does not read; %d bytes are kept for it", used, nap, kept-uint64(len(got)))
	if used > nap/4 {
		t.Errorf("the server spins: %v of CPU in %v", used, nap)
	}
	if limit := uint64(24 << 20); kept > limit {
		t.Errorf("%d bytes are kept for a client that does not read, limit %d", kept, limit)
	}
	rest, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	same(t, string(got)+string(rest), uvicornTokens(1, n, true))
	if n := r.ended(splice.Ended, splice.Spliced); n != 1 {
		t.Errorf("%d responses ended as spliced, want 1", n)
	}
}

// The server is told of a client's departure while it sends, and while it has nothing
// to send; its other connections go on.
func uvicornLeaving(t *testing.T, u *uvicorn) {
	r := newRig(t)
	r.early = true
	const n = 30
	slowest := map[string]time.Duration{}
	for i := range n {
		name, kind := 1000+i, []string{"mixed", "silent", "large"}[i%3]
		p := r.dial(t)
		p.ask(t, &u.engine, fmt.Sprintf("/%d?n=0&kind=%s", name, kind))
		want := uvicornTokens(name, 20, kind == "large")
		got := make([]byte, len(want))
		if _, err := io.ReadFull(p.open(t), got); err != nil {
			t.Fatal(err)
		}
		same(t, string(got), want)
		if i%2 == 0 {
			_ = p.SetLinger(0)
		}
		left := time.Now()
		p.Close()
		slowest[kind] = max(slowest[kind], u.told(t, strconv.Itoa(name)).Sub(left))

		q := r.dial(t)
		q.ask(t, &u.engine, fmt.Sprintf("/%d?n=20&kind=mixed", i))
		same(t, q.answer(t), uvicornTokens(i, 20, false))
		q.Close()
	}
	t.Logf("%d clients left; the server was told after %v at the most, by what it did", n, slowest)
	if n := r.ended(splice.Damaged, splice.Spliced); n != 0 {
		t.Errorf("%d streams were damaged", n)
	}
}
