package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// slow is how long an engine may take for anything on a busy machine.
const slow = 3 * time.Minute

// llama starts a server over llama.cpp and returns its URL. It ends with the test.
func llama(t *testing.T, dir, model string) string {
	t.Helper()
	cmd := exec.Command("node", "server.mjs", model)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(slow, func() { _ = cmd.Process.Kill() })
	var ready struct{ URL string }
	out := bufio.NewReader(stdout)
	line, err := out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	t.Cleanup(func() {
		kill.Reset(10 * time.Second)
		stdin.Close() // it ends with its input
		_, _ = out.WriteTo(testWriter{t})
		if err := cmd.Wait(); err != nil {
			t.Errorf("llama server: %v\n%s", err, stderr.String())
		}
		kill.Stop()
	})
	if err != nil {
		t.Fatalf("llama server printed %q: %v\n%s", line, err, stderr.String())
	}
	kill.Stop()
	return ready.URL
}

// TestRealKVCache puts the agent before two servers of llama.cpp, whose KV
// caches are real: a repeated prompt must go where its beginning is held, and
// the engine itself says how many tokens it did not have to read again.
func TestRealKVCache(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the pinned llama.cpp library is for linux on amd64")
	}
	dir := npm(t, "llama", "node-llama-cpp")
	model := filepath.Join(t.TempDir(), "random.gguf")
	if out, err := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "gguf.mjs"), model).CombinedOutput(); err != nil {
		t.Fatalf("writing the model: %v\n%s", err, out)
	}
	urls := []string{llama(t, dir, model), llama(t, dir, model)}
	for i, mode := range []string{"off", "auto"} {
		t.Run("splice="+mode, func(t *testing.T) {
			a := startAgent(t, urls, mode, map[string]any{
				"debug_headers": true, "prefix_affinity.exploration": 0, "poll.timeout": "10s",
			})
			if s := a.Status().Splice; mode == "auto" && s.State != "on" {
				t.Skipf("the kernel cannot splice here: %s", s.Reason)
			}
			base := "http://" + a.Addr()
			eventually(t, "both engines polled", slow, func() bool {
				s := a.Status()
				return s.Backends[0].Measured && s.Backends[1].Measured
			})
			realKVCache(t, base, uint64(100*i))
			abortFreesEngine(t, base, "random", urls)
			if s := settled(t, a); mode == "auto" && s.Splice.Chunks == 0 {
				t.Errorf("no chunk was spliced: %+v", s.Splice)
			}
		})
	}
}

func realKVCache(t *testing.T, base string, seed uint64) {
	const prompts, length = 4, 1500
	var first [prompts]reply
	for i := range prompts {
		r := ask(t, base, chat("random", 4, prose(seed+uint64(i), length)))
		t.Logf("prompt %d, new:    %s, %d of %d tokens cached, first token after %v", i, r.backend, r.cached, r.prompt, r.ttft)
		if r.prompt < length || r.cached > r.prompt/10 {
			t.Errorf("prompt %d is new, yet %d of its %d tokens were cached", i, r.cached, r.prompt)
		}
		first[i] = r
	}
	for range 2 {
		for i := range prompts {
			r := ask(t, base, chat("random", 4, prose(seed+uint64(i), length)))
			t.Logf("prompt %d, again:  %s, %d of %d tokens cached, first token after %v", i, r.backend, r.cached, r.prompt, r.ttft)
			if r.backend != first[i].backend {
				t.Errorf("prompt %d went to %s, and again to %s", i, first[i].backend, r.backend)
			}
			if r.cached < r.prompt*9/10 {
				t.Errorf("prompt %d again: only %d of %d tokens were cached", i, r.cached, r.prompt)
			}
		}
	}
	// The next turn of a conversation begins with the one before.
	r := ask(t, base, chat("random", 4, prose(seed, length), first[0].text, "And then?"))
	t.Logf("prompt 0, longer: %s, %d of %d tokens cached, first token after %v", r.backend, r.cached, r.prompt, r.ttft)
	if r.backend != first[0].backend || r.cached < length {
		t.Errorf("the next turn went to %s with %d of %d tokens cached, the first to %s", r.backend, r.cached, r.prompt, first[0].backend)
	}
}

// abortFreesEngine leaves a long stream: its engine must stop at once.
func abortFreesEngine(t *testing.T, base, model string, urls []string) {
	t.Helper()
	running := func() (n float64) {
		for _, u := range urls {
			n += gauge(t, u, "vllm:num_requests_running")
		}
		return n
	}
	made := func() (n float64) {
		for _, u := range urls {
			n += gauge(t, u, "vllm:generation_tokens_total")
		}
		return n
	}
	const length = 6000
	before := made()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := chat(model, length, "Tell me everything.")
	body["min_tokens"], body["ignore_eos"] = length, true
	if r, err := read(ctx, base, body, func(n int) {
		if n == 5 {
			cancel()
		}
	}); err == nil {
		t.Fatalf("the stream was left after 5 chunks, yet it ended by itself after %d", r.chunks)
	}
	eventually(t, "the engine stops after its client left", slow, func() bool { return running() == 0 })
	if n := made() - before; n >= length {
		t.Errorf("the engine made all %v tokens though its client left after 5", n)
	}
}
