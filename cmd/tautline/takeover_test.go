package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/tools/modelserver"
)

// agentProcess is an agent in a process of its own.
type agentProcess struct {
	url   string
	cmd   *osexec.Cmd
	ended chan struct{} // closed when it has; then cmd.ProcessState says how
	log   testutil.Journal
}

// startProcess runs an agent with these arguments until it listens. It ends with the test.
func startProcess(t *testing.T, args string) *agentProcess {
	t.Helper()
	a := &agentProcess{cmd: osexec.Command(os.Args[0]), ended: make(chan struct{})}
	a.cmd.Env = append(os.Environ(), mainArgs+"=agent "+args)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	a.cmd.Stderr = &a.log
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	go func() {
		_ = a.cmd.Wait() // ProcessState says more
		close(a.ended)
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // it has ended, or the test has failed
		<-a.ended
	})
	url, found := strings.CutPrefix(strings.TrimSpace(line), "client ")
	if !found {
		_ = a.cmd.Process.Kill()
		<-a.ended
		t.Fatalf("printed %q: %s", line, a.log.String())
	}
	a.url = url
	return a
}

// talk is a conversation of a client that asks one agent while it can, and then another,
// as behind a balancer that tries again where a request failed.
type talk struct {
	http.Client
	agents []*agentProcess // the one that it asks, and who comes after
	said   []string        // what the user has said
	cut    int             // answers that broke off
}

type turn struct {
	prompt, cached int // tokens
	by             *agentProcess
}

// ask asks for an answer of so many tokens, again for no more than 100. begun is told when
// some of it is there.
func (k *talk) ask(tokens int, begun func()) (turn, error) {
	k.said = append(k.said, strings.Repeat(fmt.Sprintf("%p %d ", k, len(k.said)), 400))
	for {
		got, err := k.try(tokens, begun)
		if err == nil || len(k.agents) == 1 {
			return got, err
		}
		k.agents, tokens = k.agents[1:], min(tokens, 100)
	}
}

func (k *talk) try(tokens int, begun func()) (turn, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var all []message
	for i, s := range k.said {
		if i > 0 {
			all = append(all, message{"assistant", "go on"})
		}
		all = append(all, message{"user", s})
	}
	body, err := json.Marshal(map[string]any{
		"model": "stand-in", "stream": true, "max_tokens": tokens, "ignore_eos": true, "messages": all,
		"stream_options": map[string]any{"include_usage": true},
	})
	if err != nil {
		return turn{}, err
	}
	got := turn{by: k.agents[0]}
	resp, err := k.Post(got.by.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return got, fmt.Errorf("status %s", resp.Status)
	}
	in := bufio.NewReader(resp.Body)
	for done := false; ; {
		line, err := in.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF) && done:
			return got, nil
		case errors.Is(err, io.EOF):
			return got, errors.New("an end that is none")
		case err != nil:
			k.cut++
			return got, err
		}
		if begun != nil {
			begun()
			begun = nil
		}
		var event struct {
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		data := strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		done = done || data == "[DONE]"
		if json.Unmarshal([]byte(data), &event) == nil && event.Usage != nil {
			got.prompt, got.cached = event.Usage.Prompt, event.Usage.Details.Cached
		}
	}
}

// TestTakeover: of two agents before the same engines one is told to end, or is killed,
// while its clients wait for answers. What it has begun it finishes, or, killed, breaks
// off for everybody to see; the other answers at once whatever comes to it, remembers
// from then on where it went, and the engines are left with nothing to do.
func TestTakeover(t *testing.T) {
	const (
		talks = 12
		turns = 3 // before, and some more after
	)
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		tokens int // of the answers that are under way then
	}{
		{"told to end", syscall.SIGTERM, 100},
		{"killed", syscall.SIGKILL, 100000}, // never to be finished
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			secret, file := filepath.Join(dir, "hash"), filepath.Join(dir, "agent.yaml")
			if err := os.WriteFile(secret, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
				t.Fatal(err)
			}
			text := "listen: '127.0.0.1:0'\nadmin: ''\nsplice: {mode: 'off'}\nlog: {level: error}\ndrain_timeout: 10m\n" +
				"poll: {interval: 20ms, window: 1m}\nrouting: {policy: priced-spread}\n" +
				"prefix_affinity: {exploration: 0, hash_key_path: " + secret + "}\nbackends:\n"
			var engines []*modelserver.Server
			for i := range 3 {
				cfg := modelserver.Default()
				cfg.PrefillRate, cfg.TokenDelay = 1e6, 2*time.Millisecond
				e, err := modelserver.Start(cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				engines = append(engines, e)
				text += fmt.Sprintf("  - {name: gpu%d, url: '%s', engine: vllm}\n", i, e.URL())
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			first, second := startProcess(t, "--config "+file), startProcess(t, "--config "+file)

			var all []*talk
			var ready, wg sync.WaitGroup
			signalled := make(chan struct{})
			// A connection for each request: one that is kept may be closed by an agent that
			// drains just when it is used, and net/http does not try a POST again.
			for i := range talks {
				k := &talk{agents: []*agentProcess{first, second}}
				if i%2 > 0 {
					k.agents = k.agents[1:]
				}
				k.Transport = &http.Transport{DisableKeepAlives: true}
				all = append(all, k)
				ready.Add(1)
				wg.Go(func() {
					its := k.agents[0]
					then, tokens := its, c.tokens // of the answer that is under way
					if c.signal == syscall.SIGKILL {
						then = second
					}
					if its == second {
						tokens = 100
					}
					begun := sync.OnceFunc(ready.Done)
					defer begun()
					ask := func(tokens int, begun func(), by *agentProcess) turn {
						got, err := k.ask(tokens, begun)
						if err != nil || by != nil && got.by != by {
							t.Errorf("conversation %d, turn %d: answered by the second one: %v, %v", i, len(k.said), got.by == second, err)
						}
						return got
					}
					for range turns - 1 {
						ask(10, nil, its)
					}
					got := ask(tokens, begun, then)
					if t.Failed() {
						return
					}
					<-signalled
					for got.by == first { // which may not have heard yet
						got = ask(10, nil, nil)
						if t.Failed() {
							return
						}
					}
					for range turns {
						ask(10, nil, second)
					}
				})
			}
			ready.Wait()
			if err := first.cmd.Process.Signal(c.signal); err != nil {
				t.Error(err)
			}
			close(signalled)
			wg.Wait()
			<-first.ended

			cut := 0
			for i, k := range all {
				cut += k.cut
				if got, err := k.ask(10, nil); err != nil || got.by != second || got.cached <= got.prompt/2 {
					t.Errorf("conversation %d: %d of %d tokens were cached where the second agent had sent it before: %v", i, got.cached, got.prompt, err)
				}
			}
			aborted := 0.0
			for i, e := range engines {
				testutil.Eventually(t, fmt.Sprintf("engine %d has nothing to do", i), func() bool {
					s := e.Stats()
					return s.Running == 0 && s.Waiting == 0 && s.UsedBlocks == 0
				})
				aborted += e.Stats().Aborted
			}
			want := 0
			if c.signal == syscall.SIGKILL {
				want = talks / 2
			} else if !first.cmd.ProcessState.Success() {
				t.Errorf("ended with %v: %s", first.cmd.ProcessState, first.log.String())
			}
			if cut != want || int(aborted) != want {
				t.Errorf("%d answers broke off and engines were told of %v, want %d", cut, aborted, want)
			}
		})
	}
}
