package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
)

func TestHeldUntilThereIsRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		q := newQueue(t, n, func(o *Options) { o.Params.DebugHeaders = true })
		q.ask(t.Context(), 1000)
		q.held(1)
		time.Sleep(10*time.Second + time.Millisecond)
		q.held(1)
		if sent := q.spy.order(); len(sent) != 0 {
			t.Fatalf("%v were sent without room", sent)
		}
		q.poll(0.5)
		q.proxy.Wake()
		resp := <-q.done[0]
		if got, want := resp.Header.Get("X-Tautline-Held"), "room after 10.001s"; got != want {
			t.Errorf("said to be held %q, want %q", got, want)
		}
		q.ends(ended{HoldRoom, 10*time.Second + time.Millisecond})
		if s := q.last(1); s.Route != 0 || s.Took < 10*time.Second {
			t.Errorf("recorded %+v: what it was held is no time to route", s)
		}
		q.ask(t.Context(), 1000) // there is room: it does not wait
		if resp := <-q.done[1]; resp.Header.Get("X-Tautline-Held") != "" {
			t.Errorf("said to be held %q", resp.Header.Get("X-Tautline-Held"))
		}
		q.ends(ended{HoldRoom, 10*time.Second + time.Millisecond})
	})
}

// heldFor is how long a request is held before something happens, between two ticks.
const heldFor = 30*time.Second + 50*time.Millisecond

// Whatever tells of room has those that are held looked at, at once.
func TestWhatWakes(t *testing.T) {
	for name, happen := range map[string]struct {
		so   func(q *queue)
		want time.Duration // later
		how  Hold
	}{
		"a poll, which the owner tells of": {func(q *queue) { q.poll(0); q.proxy.Wake() }, 0, HoldRoom},
		"what nobody tells of":             {func(q *queue) { q.poll(0) }, holdTick, HoldRoom},
		"a reload": {func(q *queue) {
			q.poll(0)
			if err := q.proxy.SetParams(*q.proxy.params.Load()); err != nil {
				q.t.Error(err)
			}
		}, 0, HoldRoom},
		"a new backend":          {func(q *queue) { q.add("c", echo) }, 0, HoldRoom},
		"only one backend stays": {func(q *queue) { q.fleet.Remove(1); q.proxy.RemoveBackend(1) }, 0, HoldRoom},
		"a reload switches it off": {func(q *queue) {
			p := *q.proxy.params.Load()
			p.Hold = 0
			if err := q.proxy.SetParams(p); err != nil {
				q.t.Error(err)
			}
		}, 0, HoldOff},
		"a reload makes the limit shorter": {func(q *queue) {
			p := *q.proxy.params.Load()
			p.Hold = limit - 29*time.Second
			if err := q.proxy.SetParams(p); err != nil {
				q.t.Error(err)
			}
		}, limit - 29*time.Second - heldFor, HoldLimit},
		"the limit": {func(*queue) {}, limit - heldFor, HoldLimit},
		"the drain": {func(q *queue) {
			if err := q.shutdown(time.Hour); err != nil {
				q.t.Error(err)
			}
		}, 0, HoldDrain},
		"no backend stays": {func(q *queue) {
			for slot := range 2 {
				q.fleet.Drain(slot, true)
			}
			q.proxy.Wake()
		}, 0, HoldNoBackend},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *pipes) {
				q := newQueue(t, n)
				q.ask(t.Context(), 1000)
				time.Sleep(heldFor)
				q.held(1)
				happen.so(q)
				synctest.Wait()
				resp := <-q.done[0]
				if none := happen.how == HoldNoBackend; none != (resp.StatusCode == 503) {
					t.Errorf("answered %d", resp.StatusCode)
				}
				if want := (ended{happen.how, heldFor + happen.want}); happen.want != holdTick {
					q.ends(want)
				} else if got := q.ledger.holds[0]; got.how != HoldRoom || got.waited <= heldFor || got.waited > want.waited {
					t.Errorf("%v, want a tick", got)
				}
			})
		})
	}
}

// Of those for which there was room only those go whose room nobody before them took.
func TestOneTakesTheRoomOfAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		q, pieces := streamingQueue(t, n)
		q.poll(1)
		for range 3 {
			q.ask(t.Context(), 300_000)
		}
		q.held(3)
		q.poll(0.5) // 450,000 at each
		q.proxy.Wake()
		synctest.Wait()
		q.held(1)
		if sent := q.spy.order(); len(sent) != 2 {
			t.Errorf("%d were sent, want 2", len(sent))
		}
		time.Sleep(12345 * time.Microsecond)
		close(pieces)
		q.ends(ended{HoldRoom, 0}, ended{HoldRoom, 0}, ended{HoldRoom, 12345 * time.Microsecond})
	})
}

// Who has been sent is not counted any more, though others of the same look are to come.
func TestHeldCountsWhoWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		q := newQueue(t, n)
		for range 3 {
			q.ask(t.Context(), 1000)
		}
		q.held(3)
		var counts []int
		q.spy.mu.Lock()
		q.spy.before = func() {
			for _, done := range q.done[:len(counts)] {
				if resp := <-done; resp != nil && resp.StatusCode != 200 {
					t.Errorf("answered %d", resp.StatusCode)
				}
			}
			counts = append(counts, q.proxy.Held())
		}
		q.spy.mu.Unlock()
		q.poll(0)
		q.proxy.Wake()
		synctest.Wait()
		if want := []int{3, 2, 1}; !slices.Equal(counts, want) {
			t.Errorf("counted %v, want %v", counts, want)
		}
		q.ends(ended{HoldRoom, 0}, ended{HoldRoom, 0}, ended{HoldRoom, 0})
	})
}

// The end of an answer makes room.
func TestAnswersThatEndMakeRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		q, pieces := streamingQueue(t, n)
		q.poll(0.5)
		for range 2 {
			q.ask(t.Context(), 300_000)
			pieces <- "data: 1\n\n"
		}
		q.ask(t.Context(), 300_000) // 150,000 are left at each
		synctest.Wait()
		q.held(1)
		time.Sleep(12345 * time.Microsecond)
		began := time.Now()
		close(pieces) // the first two end, and later the third
		q.ends(ended{HoldRoom, time.Since(began) + 12345*time.Microsecond})
	})
}

// Who has least to prefill goes first, then who came first; who has waited for the
// limit before all.
func TestTheOrderOfThoseHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		q := newQueue(t, n)
		for _, tokens := range []int{40_000, 20_000, 5000, 30_000, 1000} { // in steps of 8,192: 4, 2, 0, 3, 0
			q.ask(t.Context(), tokens)
			time.Sleep(time.Second)
		}
		q.held(5)
		time.Sleep(limit - 4500*time.Millisecond) // the first is over
		q.held(4)
		q.poll(0)
		q.proxy.Wake()
		synctest.Wait()
		var got []int
		for _, bytes := range q.spy.order() {
			got = append(got, bytes/4000*1000)
		}
		if want := []int{40_000, 5000, 1000, 20_000, 30_000}; !slices.Equal(got, want) {
			t.Errorf("sent in the order %v, want %v", got, want)
		}
		for _, done := range q.done {
			<-done
		}
		q.idle()
	})
}

// A client that goes away while its request is held leaves nothing behind, whether or
// not the request has been handed a backend meanwhile.
func TestClientThatLeavesWhileHeld(t *testing.T) {
	t.Run("held", func(t *testing.T) {
		inBubble(t, func(t *testing.T, n *pipes) {
			q := newQueue(t, n)
			ctx, leave := context.WithCancel(t.Context())
			q.ask(ctx, 1000)
			q.ask(t.Context(), 1000)
			q.held(2)
			time.Sleep(time.Second)
			leave()
			synctest.Wait()
			q.held(1)
			if s := q.last(1); s.Abort != AbortClient || s.Code != 0 || s.Backend != "" {
				t.Errorf("recorded %+v", s)
			}
			q.poll(0)
			q.proxy.Wake()
			q.ends(ended{HoldClient, time.Second}, ended{HoldRoom, time.Second})
			if sent := q.spy.order(); len(sent) != 1 {
				t.Errorf("%d were sent, want the one that stayed", len(sent))
			}
		})
	})
	t.Run("the only one", func(t *testing.T) {
		inBubble(t, func(t *testing.T, n *pipes) {
			q := newQueue(t, n)
			ctx, leave := context.WithCancel(t.Context())
			q.ask(ctx, 1000)
			q.held(1)
			leave()
			synctest.Wait()
			h := &q.proxy.holding
			h.mu.Lock()
			running := h.running
			h.mu.Unlock()
			if running {
				t.Error("somebody looks at an empty line until the next tick")
			}
			q.ends(ended{HoldClient, 0})
		})
	})
	t.Run("handed over", func(t *testing.T) {
		inBubble(t, func(t *testing.T, n *pipes) {
			contexts := make(chan context.Context, 1)
			q := newQueue(t, n, func(o *Options) {
				o.Page = func(r *http.Request) http.Handler { contexts <- r.Context(); return nil }
			})
			ctx, leave := context.WithCancel(t.Context())
			q.ask(ctx, 1000)
			q.held(1)
			gone := <-contexts
			handed := decide.Counts{}
			q.spy.mu.Lock()
			q.spy.before = func() { // its backend is chosen, and before it hears of that it has gone
				leave()
				<-gone.Done()
				handed = q.fleet.Counts()
			}
			q.spy.mu.Unlock()
			q.poll(0)
			q.proxy.Wake()
			synctest.Wait()
			if handed.InFlight != 1 {
				t.Errorf("%d were in flight when it left: the test proves nothing", handed.InFlight)
			}
			if s := q.last(1); s.Abort != AbortClient || s.Code != 0 || s.Backend != "" {
				t.Errorf("recorded %+v", s)
			}
			q.ends(ended{HoldClient, 0})
			for _, b := range q.fleet.Snapshot(q.proxy.clock(), nil) {
				if b.InFlight != 0 || b.Uncached != 0 || b.IndexEntries != 0 {
					t.Errorf("left behind: %+v", b)
				}
			}
		})
	})
}

// A drain does not wait for room, and when its time is over nobody is held.
func TestDrainWhileHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		q := newQueue(t, n)
		for range 3 {
			q.ask(t.Context(), 1000)
			time.Sleep(time.Second)
		}
		q.held(3)
		began := time.Now()
		if err := q.shutdown(time.Hour); err != nil || time.Since(began) > time.Second {
			t.Errorf("drained after %v: %v", time.Since(began), err)
		}
		var how []Hold
		for _, h := range q.ledger.holds {
			how = append(how, h.how)
		}
		if !slices.Equal(how, []Hold{HoldDrain, HoldDrain, HoldDrain}) {
			t.Errorf("holds ended as %v", how)
		}
		for i, done := range q.done {
			if resp := <-done; resp == nil || resp.StatusCode != 200 {
				t.Errorf("request %d was not answered", i)
			}
		}
		q.idle()
	})
}

// Nobody is held behind the beginning of a drain, nor behind its end.
func TestDrainHoldsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		q := newQueue(t, n)
		q.ask(t.Context(), 1000)
		q.held(1)
		q.proxy.abort(errDrain) // as if it had not been sent when the drain began
		if resp := <-q.done[0]; resp.StatusCode != 503 {
			t.Errorf("answered %d", resp.StatusCode)
		}
		if s := q.last(1); s.Refusal != RefusalDrain {
			t.Errorf("recorded %+v", s)
		}
		q.ends(ended{HoldDrain, 0})
	})
	inBubble(t, func(t *testing.T, n *pipes) {
		q := newQueue(t, n)
		q.proxy.holding.close()
		q.ask(t.Context(), 1000)
		q.ends(ended{HoldDrain, 0})
	})
}

// As many as there may be are held, and no more bodies than leave memory for others.
func TestHeldNoMoreThanFit(t *testing.T) {
	for name, c := range map[string]struct {
		params func(p *Params)
		how    Hold
	}{
		"number": {func(p *Params) { p.HoldMost = 2 }, HoldFull},
		// Each body has a buffer of 8,192 bytes.
		"memory": {func(p *Params) { p.MaxBodyBytes, p.BodyMemory = 8192, 5*8192 }, HoldMemory},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *pipes) {
				q := newQueue(t, n, func(o *Options) { c.params(&o.Params) })
				for range 2 {
					q.ask(t.Context(), 1500)
				}
				q.held(2)
				q.ask(t.Context(), 1500)
				q.held(2)
				if resp := <-q.done[2]; resp.StatusCode != 200 {
					t.Errorf("the third was answered %d", resp.StatusCode)
				}
				q.poll(0)
				q.proxy.Wake()
				q.ends(ended{c.how, 0}, ended{HoldRoom, 0}, ended{HoldRoom, 0})
			})
		})
	}
}

// A request that a backend has refused is offered to the next at once.
func TestRetriesAreNotHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, n *pipes) {
		q := bareQueue(t, n)
		first := true
		for _, name := range []string{"a", "b", "c"} { // two to choose from after the refusal
			q.add(name, func(w http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					q.poll(1) // there is no room any more
					w.WriteHeader(503)
					return
				}
				echo(w, r)
			})
		}
		q.poll(0.5)
		q.ask(t.Context(), 1000)
		if resp := <-q.done[0]; resp.StatusCode != 200 {
			t.Errorf("answered %d", resp.StatusCode)
		}
		q.ends()
		if want := []bool{true, false}; !slices.Equal(q.spy.patient, want) {
			t.Errorf("might be held: %v, want %v", q.spy.patient, want)
		}
	})
}

// What is not held: whatever is no prompt that tells what it needs.
func TestWhatIsNotHeld(t *testing.T) {
	prompt := chat(strings.Repeat("x", 4000))
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		change             func(o *Options)
	}{
		"holding is off":          {"POST", "/v1/chat/completions", prompt, nil, func(o *Options) { o.Params.Hold = 0 }},
		"another path":            {"POST", "/v1/embeddings", prompt, nil, nil},
		"no body":                 {"GET", "/v1/models", "", nil, nil},
		"a body passed on":        {"POST", "/upload", prompt, []string{"Content-Type", "audio/wav"}, nil},
		"no JSON":                 {"POST", "/v1/chat/completions", prompt[1:], nil, nil},
		"no prompt":               {"POST", "/v1/chat/completions", `{"model":"m"}`, nil, nil},
		"an encoding":             {"POST", "/v1/chat/completions", prompt, []string{"Content-Encoding", "br"}, nil},
		"a stored prompt":         {"POST", "/v1/responses", `{"model":"m","input":"x","previous_response_id":"resp_1"}`, nil, nil},
		"a backend that is meant": {"POST", "/v1/chat/completions", prompt, nil, func(o *Options) { o.Pinner = pinTo(1) }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *pipes) {
				var change []func(*Options)
				if c.change != nil {
					change = append(change, c.change)
				}
				q := newQueue(t, n, change...)
				req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+q.addr+c.path, strings.NewReader(c.body))
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; i+1 < len(c.header); i += 2 {
					req.Header.Set(c.header[i], c.header[i+1])
				}
				began := time.Now()
				if resp, body := q.do(req); resp.StatusCode != 200 || time.Since(began) != 0 {
					t.Errorf("%d after %v: %.80s", resp.StatusCode, time.Since(began), body)
				}
				q.ends()
				if len(q.spy.patient) != 1 || q.spy.patient[0] {
					t.Errorf("asked %v times whether it may be held: %v", len(q.spy.patient), q.spy.patient)
				}
			})
		})
	}
	for name, body := range map[string]string{
		"a short prompt":  chat("x"),
		"token ids":       `{"model":"m","prompt":[1,2,3]}`,
		"several prompts": `{"model":"m","prompt":["a","b"]}`,
	} {
		path := "/v1/chat/completions"
		if strings.Contains(body, `"prompt"`) {
			path = "/v1/completions"
		}
		var p key.Prompt
		key.NewHasher([32]byte{}, key.Options{}).Read(key.ParsePath(path), []byte(body), &p)
		if len(p.Keys) != 0 || !MayHold(p.Reason) {
			t.Errorf("%s (%v): has no keys and needs memory like any other", name, p.Reason)
		}
	}
}

// pinTo is a Pinner for which every request names the backend in a slot.
type pinTo int

func (p pinTo) Readable(PinRequest) bool     { return true }
func (p pinTo) Request(PinRequest) PinAnswer { return PinAnswer{Slot: int(p)} }
func (p pinTo) Response(string, PinRequest, int, http.Header) (Rewriter, Refusal) {
	return nil, RefusalNone
}

// TestHoldingInACrowd: clients that come and go, backends that fill up, are removed and
// come back, and reloads: in the end everything has been given back.
func TestHoldingInACrowd(t *testing.T) {
	q := bareQueue(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		q.add(name, echo)
	}
	q.poll(1)
	clients, asks := 16, 30
	if testing.Short() {
		asks = 8
	}
	var wg, churn sync.WaitGroup
	stop := make(chan struct{})
	churn.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			q.poll(float64(i % 2))
			if i%3 == 0 {
				q.proxy.Wake()
			}
			p := *q.proxy.params.Load()
			p.Hold = []time.Duration{limit, 5 * time.Millisecond, 0}[i%7%3]
			if err := q.proxy.SetParams(p); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	count := func() map[Hold]int {
		q.ledger.mu.Lock()
		defer q.ledger.mu.Unlock()
		n := map[Hold]int{}
		for _, h := range q.ledger.holds {
			n[h.how]++
		}
		return n
	}
	every := func(n map[Hold]int) bool {
		return n[HoldRoom] > 0 && n[HoldClient] > 0 && n[HoldLimit]+n[HoldOff] > 0
	}
	for c := range clients {
		wg.Go(func() {
			// On a busy machine it may take longer until all ways to end a hold came up.
			for i := 0; i < asks || i < 20*asks && !every(count()); i++ {
				ctx, cancel := context.WithCancel(t.Context())
				if (c+i)%3 == 0 {
					time.AfterFunc(time.Duration(i%5)*time.Millisecond, cancel)
				}
				body := chat(fmt.Sprintf("%d %d %s", c, i, strings.Repeat("x", 2000*(i%4))))
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+q.addr+"/v1/chat/completions", strings.NewReader(body))
				if resp, err := q.client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	close(stop)
	churn.Wait()
	q.idle()
	if n := q.fleet.Counts().InFlight; n != 0 || q.proxy.Held() != 0 {
		t.Errorf("%d in flight, %d held", n, q.proxy.Held())
	}
	if n := count(); !every(n) {
		t.Errorf("holds ended as %v: the test proves little", n)
	}
}
