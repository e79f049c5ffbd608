package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/tools/modelserver"
)

// TestStrangersAgree: two agents that know nothing of each other see from the polls that
// they are two, and choose the same backend for a prompt that neither has seen.
func TestStrangersAgree(t *testing.T) {
	var urls []string
	for range 3 {
		e := engine(t, func(c *modelserver.Config) { c.TokenDelay = 20 * time.Millisecond })
		urls = append(urls, e.URL())
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	path := filepath.Join(t.TempDir(), "hash")
	if err := os.WriteFile(path, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	var agents []*Agent
	for range 2 {
		a, _ := start(t, settings(t, map[string]any{"routing.policy": "priced-spread", "poll.interval": "5ms", "poll.window": "1m",
			"prefix_affinity.hash_key_path": path}, urls...))
		agents = append(agents, a)
		for i := range 6 {
			body := fmt.Sprintf(`{"model":"stand-in","stream":true,"max_tokens":5000,"messages":[{"role":"user","content":"%d"}]}`, i)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Addr()+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
		}
	}
	for i, a := range agents {
		testutil.Eventually(t, "the other agent is noticed", func() bool { return a.Status().Shared })
		if _, page := get(t, "http://"+a.AdminAddr()+"/metrics"); !strings.Contains(page, "tautline_backends_shared 1\n") {
			t.Errorf("agent %d: the metric does not say so", i)
		}
	}
	to := map[string]bool{}
	for i := range 20 {
		body := fmt.Sprintf(`{"model":"stand-in","messages":[{"role":"user","content":"%d %s"}]}`, i, strings.Repeat("word ", 8000))
		x, y := agents[0].Explain("/v1/chat/completions", []byte(body)).(Explanation), agents[1].Explain("/v1/chat/completions", []byte(body)).(Explanation)
		if x.Backend != y.Backend || x.Left == 0 || x.Left*2 > x.Uncached {
			t.Errorf("prompt %d: to %s and %s, %d of %d tokens left there", i, x.Backend, y.Backend, x.Left, x.Uncached)
		}
		to[x.Backend] = true
	}
	if len(to) != 3 {
		t.Errorf("all went to %v", to)
	}
}
