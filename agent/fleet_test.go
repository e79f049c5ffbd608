package agent

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/load"
)

// TestFirstTokensAreOnTheBooksForWhoeverLooks: one that passed in the kernel wakes
// nobody, but no choice, explanation or status takes its prefill for going on.
func TestFirstTokensAreOnTheBooksForWhoeverLooks(t *testing.T) {
	const token = "data: {}\n\n"
	goOn := make(chan bool)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for _, next := range []string{token, ""} {
			select {
			case <-goOn:
			case <-r.Context().Done(): // the test has failed
				return
			}
			_, _ = io.WriteString(w, next)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer engine.Close()
	over := map[string]any{"splice.mode": "auto", "splice.pin_path": testutil.BPFFS(t) + "/tautline", "poll.interval": "1h", "poll.window": "1h"}
	// It is not run: its own look at the accounts, once a second, would do.
	a, err := New(t.Context(), settings(t, over, engine.URL), Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if on, why := a.SpliceOn(); !on {
		t.Skip("the kernel cannot splice here: ", why)
	}
	served := make(chan error, 1)
	go func() { served <- a.proxy.Serve(a.listener, nil) }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := a.proxy.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		<-served
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	held := func() int64 { return a.fleet.Fleet.Snapshot(a.now(), nil)[0].Uncached } // without a look at the kernel
	r := decide.Request{Pinned: -1}
	for name, look := range map[string]func(){
		"choice": func() {
			ticket, _ := a.fleet.Route(r, a.now())
			ticket.Done(a.now())
		},
		"explanation": func() { a.fleet.Explain(r, a.now()) },
		"status":      func() { a.fleet.Snapshot(a.now(), nil) },
		"room":        func() { a.fleet.Room("", a.now()) },
	} {
		resp, err := client.Post("http://"+a.Addr()+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"`+strings.Repeat("word ", 1000)+`"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "the kernel is armed", func() bool {
			n := 0
			err := a.SpliceMaps().Arms(func(maps.Conn, bpf.Arm) bool { n++; return true })
			return err == nil && n == 1
		})
		goOn <- true
		if _, err := io.ReadFull(resp.Body, make([]byte, len(token))); err != nil {
			t.Fatal(err)
		}
		if held() == 0 {
			t.Fatalf("%s: the first token came to the agent", name)
		}
		if look(); held() != 0 {
			t.Errorf("%s: %d tokens are in flight behind the first token", name, held())
		}
		goOn <- true
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
	}
}

// TestPollsWakeThoseThatAreHeld: what a poll brings may be what they wait for.
func TestPollsWakeThoseThatAreHeld(t *testing.T) {
	f := decide.NewFleet(decide.Default(), index.Default(), load.Default(), rand.New(rand.NewPCG(1, 2)))
	slot := f.Add(decide.Spec{Name: "a"})
	woken, room := 0, false
	p := polls{fleet{Fleet: f}, func() {
		woken++
		room = f.Snapshot(time.Second, nil)[0].Measured // it is on the books by then
	}}
	if p.Observe(slot, load.Sample{HasQueue: true}, time.Second); woken != 1 || !room {
		t.Errorf("a poll woke %d times", woken)
	}
	if p.Unreachable(slot, time.Second); woken != 2 {
		t.Errorf("an engine that is gone woke %d times", woken-1)
	}
}
