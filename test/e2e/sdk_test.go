// Package e2e runs real clients against the agent in front of stand-in engines.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/agent"
	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/agent/telemetry"
	"github.com/tautline/tautline/tools/modelserver"
)

// rig is an agent before three engines, and one engine more to compare with.
type rig struct {
	agent   *agent.Agent
	direct  *modelserver.Server
	engines []*modelserver.Server
}

// engineConfig is fast, and answers the same wherever a request lands.
func engineConfig() modelserver.Config {
	c := modelserver.Default()
	c.PrefillRate = 2e6
	c.TokenDelay = 2 * time.Millisecond
	c.CacheBlocks = 65536
	c.DeterministicIDs = true
	c.Created = 1700000000
	return c
}

func newRig(t *testing.T, splice string, overrides map[string]any) *rig {
	t.Helper()
	r := &rig{}
	start := func() *modelserver.Server {
		s, err := modelserver.Start(engineConfig())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	r.direct = start()
	var urls []string
	for range 3 {
		s := start()
		r.engines = append(r.engines, s)
		urls = append(urls, s.URL())
	}
	r.agent = startAgent(t, urls, splice, overrides)
	return r
}

// startAgent runs an agent before the engines at urls until the test ends.
func startAgent(t *testing.T, urls []string, splice string, overrides map[string]any) *agent.Agent {
	t.Helper()
	var backends []map[string]any
	for _, u := range urls {
		backends = append(backends, map[string]any{"url": u})
	}
	over := map[string]any{
		"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "backends": backends,
		"poll.interval": "50ms", "poll.window": "500ms", "splice.mode": splice, "splice.pin_path": "",
		"drain_timeout": "5s",
	}
	for k, v := range overrides {
		over[k] = v
	}
	cfg, err := config.Load("", over)
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(t.Context(), cfg, agent.Options{Version: "test", Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("agent: %v", err)
		}
	})
	return a
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// settled waits until nothing is in flight and returns the status then.
func settled(t *testing.T, a *agent.Agent) telemetry.Status {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s := a.Status()
		busy := s.ActiveStreams > 0
		for _, b := range s.Backends {
			busy = busy || b.Inflight > 0 || b.UncachedTokens > 0
		}
		if !busy {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("still busy: %+v", s)
		}
	}
}

// npm returns a folder beside this file with its packages installed. On a
// machine without Node or its registry the test is skipped, in CI it fails.
func npm(t *testing.T, name, oneOf string) string {
	t.Helper()
	dir, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	miss := t.Skipf
	if os.Getenv("CI") != "" {
		miss = t.Fatalf
	}
	if _, err := exec.LookPath("npm"); err != nil {
		miss("%s needs Node and npm: %v", name, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", oneOf)); err == nil {
		return dir
	}
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=optional")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		miss("npm ci: %v\n%s", err, out)
	}
	return dir
}

// compare runs every scenario of the SDKs at both URLs and returns how many
// there were. env is more of compare.mjs's environment.
func compare(t *testing.T, dir, direct, through string, env ...string) (n int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "compare.mjs", direct, through)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	for sc := bufio.NewReader(bytes.NewReader(out)); ; n++ {
		line, rerr := sc.ReadBytes('\n')
		if rerr == io.EOF {
			break
		}
		var res struct {
			Name   string
			OK     bool
			Detail json.RawMessage
		}
		if jerr := json.Unmarshal(line, &res); jerr != nil {
			t.Fatalf("client printed %q", line)
		}
		if !res.OK {
			t.Errorf("%s: %s", res.Name, res.Detail)
		}
	}
	if n == 0 || err != nil && !t.Failed() {
		t.Fatalf("clients: %v, %d scenarios\n%s", err, n, stderr.String())
	}
	return n
}

// TestSDKsGetTheSameAnswersAsDirectly runs every scenario of the official SDKs
// straight at an engine and through the agent, spliced and not.
func TestSDKsGetTheSameAnswersAsDirectly(t *testing.T) {
	dir := npm(t, "clients", "openai")
	for _, mode := range []string{"off", "auto"} {
		t.Run("splice="+mode, func(t *testing.T) {
			r := newRig(t, mode, nil)
			if s := r.agent.Status().Splice; mode == "auto" && s.State != "on" {
				t.Skipf("the kernel cannot splice here: %s", s.Reason)
			}
			n := compare(t, dir, r.direct.URL(), "http://"+r.agent.Addr())
			s := settled(t, r.agent)
			var picks uint64
			for _, b := range s.Backends {
				for _, n := range b.Picks {
					picks += n
				}
			}
			if picks < uint64(n) {
				t.Errorf("%d requests were routed, want at least one for each of %d scenarios", picks, n)
			}
			if mode == "auto" && s.Splice.Chunks == 0 {
				t.Errorf("no chunk was spliced: %+v", s.Splice)
			}
		})
	}
}
