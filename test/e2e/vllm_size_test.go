package e2e

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
)

// TestVLLMSize lets the agent learn how much a real vLLM holds: its cache is small, and
// the agent is told that there is four times as much.
func TestVLLMSize(t *testing.T) {
	binary, dir := vllmBinary(t), t.TempDir()
	writeModel(t, dir)
	v := startVLLM(t, binary, dir, "--num-gpu-blocks-override", "256", "--max-model-len", "8192")
	v.ready(t)
	const tiers, share = 4, 8       // a prompt is an eighth of the cache
	size := cacheTokens(t, v.url()) // the tiny model has a token per byte
	seed := uint64(0)
	for _, c := range []struct {
		name        string
		tiers       float64
		prompts     int // so many take turns
		rounds      int
		least, most float64 // of the factor
	}{
		{"what fits is found", tiers, share / 2, 6, 0.95, 1.05},
		{"what does not fit is gone", tiers, 2 * share, 4, 0.2, 0.5},
		{"the engine's own size holds", 1, 2 * share, 2, 1, 1.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := startAgent(t, []string{v.url()}, "off", map[string]any{
				"routing.policy": "priced-spread", "poll.timeout": "10s", "prefix_affinity.kv_tiers_factor": c.tiers,
			})
			base := "http://" + a.Addr()
			eventually(t, "polled", slow, func() bool { b := a.Status().Backends[0]; return b.Measured && b.IndexCapacity > 0 })
			for i := range uint64(8) { // they teach how many bytes a token has, and that misses are told
				ask(t, base, chat(vllmModel, 2, prose(seed+1<<32+i, size/share)))
			}
			cached, tokens := 0, 0
			for range c.rounds {
				for i := range c.prompts {
					r := ask(t, base, chat(vllmModel, 2, prose(seed+uint64(i), size/share)))
					cached, tokens = cached+r.cached, tokens+r.prompt
				}
			}
			seed += 1000
			b := settled(t, a).Backends[0]
			t.Logf("%d tokens of cache, %d of %d tokens cached, factor %v, index %d of %d", size, cached, tokens, b.SizeFactor, b.IndexEntries, b.IndexCapacity)
			if b.SizeFactor < c.least || b.SizeFactor > c.most {
				t.Errorf("factor %v, want %v to %v", b.SizeFactor, c.least, c.most)
			}
		})
	}
}

// cacheTokens reads the size of the KV cache from vLLM's metrics page.
func cacheTokens(t *testing.T, base string) int {
	t.Helper()
	resp, err := http.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	tokens := 1
	for _, label := range []string{"block_size", "num_gpu_blocks"} {
		m := regexp.MustCompile(`vllm:cache_config_info\{.*[{,]` + label + `="(\d+)"`).FindSubmatch(page)
		if m == nil {
			t.Fatalf("no %s on the metrics page", label)
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		tokens *= n
	}
	return tokens
}
