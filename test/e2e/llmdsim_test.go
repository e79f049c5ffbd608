package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// llmdSim is the environment variable that holds the path of an
// llm-d-inference-sim binary; `make test-llm-d-sim` builds one.
const llmdSim = "LLM_D_SIM"

// inside marks the process that TestLLMDSim runs in a network of its own.
const inside = "LLM_D_SIM_INSIDE"

// TestLLMDSim runs the SDKs' scenarios against the agent before three
// simulators of another project. They bind every address, so the test runs in a
// network namespace of its own, and each simulator in a further one behind a
// veth pair, as a pod is on its node.
func TestLLMDSim(t *testing.T) {
	binary := os.Getenv(llmdSim)
	if binary == "" {
		t.Skipf("set %s to an llm-d-inference-sim binary, or run make test-llm-d-sim", llmdSim)
	}
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	dir := npm(t, "clients", "openai")
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLLMDSim$", "-test.v", "-test.timeout=10m")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := cmd.CombinedOutput()
		t.Logf("in its own network:\n%s", out)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	run(t, "ip", "link", "set", "lo", "up")
	direct := startSim(t, binary, 0)
	var urls []string
	for i := 1; i <= 3; i++ {
		urls = append(urls, startSim(t, binary, i))
	}
	for _, mode := range []string{"off", "auto"} {
		t.Run("splice="+mode, func(t *testing.T) {
			a := startAgent(t, urls, mode, map[string]any{"prefix_affinity.exploration": 0, "poll.timeout": "5s"})
			if s := a.Status().Splice; mode == "auto" && s.State != "on" {
				t.Skipf("the kernel cannot splice here: %s", s.Reason)
			}
			eventually(t, "all polled", slow, func() bool {
				for _, b := range a.Status().Backends {
					if !b.Measured || len(b.Models) == 0 || b.IndexCapacity == 0 {
						return false
					}
				}
				return true
			})
			n := compare(t, dir, direct, "http://"+a.Addr(), simEnv...)
			s := settled(t, a)
			sticky := uint64(0)
			for _, b := range s.Backends {
				sticky += b.Picks["sticky"]
				t.Logf("%s: picks %v, index %d of %d blocks, %d tokens matched, %d of %d reported cached, ttft %+v, %d chunks spliced",
					b.Name, b.Picks, b.IndexEntries, b.IndexCapacity, b.MatchedTokens, b.CachedTokens, b.UsageTokens, b.TTFT, b.SplicedChunks)
			}
			t.Logf("%d scenarios, splice %+v", n, s.Splice)
			if mode == "auto" && s.Splice.Chunks == 0 {
				t.Errorf("no chunk was spliced: %+v", s.Splice)
			}
			stickyPrompt(t, "http://"+a.Addr(), "stand-in")
		})
	}
}

// simEnv says where the simulator differs from an engine: its ids and the
// arguments of its tool calls are random; it refuses a system prompt in parts
// (messagesStream), has no count_tokens, and would echo a big prompt for an
// hour, so its context is too small for one.
var simEnv = []string{
	"E2E_VOLATILE=id,item_id,call_id,arguments",
	"E2E_ABSENT=bigPrompt,messagesStream,countTokens",
}

// stickyPrompt sends a long prompt three times: the later ones must go where
// the first went, and the engine must report a hit.
func stickyPrompt(t *testing.T, base, model string) {
	t.Helper()
	body := chat(model, 8, prose(uint64(time.Now().UnixNano()), 4000))
	first := ask(t, base, body)
	for range 2 {
		r := ask(t, base, body)
		t.Logf("first %d of %d tokens cached, again %d of %d; first token after %v, again %v", first.cached, first.prompt, r.cached, r.prompt, first.ttft, r.ttft)
		if r.cached < r.prompt*8/10 {
			t.Errorf("again only %d of %d tokens were cached", r.cached, r.prompt)
		}
	}
}

// startSim starts simulator i in a network namespace of its own and returns its URL.
func startSim(t *testing.T, binary string, i int) string {
	t.Helper()
	// It waits for its network before it begins, and ends with its input, so
	// that it cannot outlive the test.
	cmd := exec.Command("sh", "-c", `read go && ip link set lo up && { "$0" "$@" </dev/null & read end; kill $!; wait $!; }`, binary,
		"--model", "stand-in", "--port", "8000", "--mode", "echo", "--max-model-len", "131072", "--max-num-seqs", "8",
		"--latency-calculator", "per-token", "--prefill-overhead", "5ms", "--prefill-time-per-token", "20us", "--inter-token-latency", "4ms",
		"--enable-kvcache", "--kv-cache-size", "65536", "--block-size", "16")
	cmd.Env = append(os.Environ(), "POD_IP=127.0.0.1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait() // "terminated"
		if t.Failed() {
			t.Logf("simulator %d:\n%s", i, tail(log.String(), 3000))
		}
	})
	pid, host := fmt.Sprint(cmd.Process.Pid), fmt.Sprintf("veth%d", i)
	run(t, "ip", "link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", pid)
	run(t, "ip", "addr", "add", fmt.Sprintf("10.77.%d.1/24", i), "dev", host)
	run(t, "ip", "link", "set", host, "up")
	run(t, "nsenter", "-t", pid, "-n", "ip", "addr", "add", fmt.Sprintf("10.77.%d.2/24", i), "dev", "eth0")
	run(t, "nsenter", "-t", pid, "-n", "ip", "link", "set", "eth0", "up")
	if _, err := io.WriteString(stdin, "go\n"); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://10.77.%d.2:8000", i)
	healthy(t, url)
	return url
}

// healthy waits until an engine says that it is ready.
func healthy(t *testing.T, url string) {
	t.Helper()
	eventually(t, url+" is ready", slow, func() bool {
		resp, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// tail is the end of a log.
func tail(s string, n int) string { return s[max(0, len(s)-n):] }
