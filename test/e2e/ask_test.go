package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

// reply is what a streamed chat told.
type reply struct {
	status  int
	backend string // who answered, by the agent's debug header
	text    string
	prompt  int // tokens, as the engine counted
	cached  int // those that it took from its KV cache
	made    int // completion tokens
	chunks  int
	ttft    time.Duration
}

// chat is a request body of the Chat Completions API, streamed with usage.
func chat(model string, maxTokens int, messages ...string) map[string]any {
	var list []map[string]any
	for i, m := range messages {
		list = append(list, map[string]any{"role": []string{"user", "assistant"}[i%2], "content": m})
	}
	return map[string]any{
		"model": model, "max_tokens": maxTokens, "temperature": 0, "messages": list,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	}
}

// ask sends a streamed chat and reads it to its end.
func ask(t *testing.T, base string, body map[string]any) reply {
	t.Helper()
	r, err := read(t.Context(), base, body, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read is ask with an end: chunk is called after each one with text.
func read(ctx context.Context, base string, body map[string]any, chunk func(n int)) (reply, error) {
	var r reply
	raw, err := json.Marshal(body)
	if err != nil {
		return r, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", bytes.NewReader(raw))
	if err != nil {
		return r, err
	}
	req.Header.Set("Content-Type", "application/json")
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	r.status, r.backend = resp.StatusCode, resp.Header.Get("X-Tautline-Backend")
	if r.status != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
		return r, fmt.Errorf("status %d: %s", r.status, b)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return r, lines.Err()
		}
		var e struct {
			Choices []struct {
				Delta struct{ Content, Reasoning string }
			}
			Usage struct {
				Prompt  int `json:"prompt_tokens"`
				Made    int `json:"completion_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return r, fmt.Errorf("event %q: %w", data, err)
		}
		if e.Usage.Prompt > 0 {
			r.prompt, r.cached, r.made = e.Usage.Prompt, e.Usage.Details.Cached, e.Usage.Made
		}
		for _, c := range e.Choices {
			if text := c.Delta.Content + c.Delta.Reasoning; text != "" {
				if r.chunks++; r.chunks == 1 {
					r.ttft = time.Since(start)
				}
				r.text += text
				if chunk != nil {
					chunk(r.chunks)
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return r, err
	}
	return r, io.ErrUnexpectedEOF
}

// prose returns n letters and spaces that no other seed has.
func prose(seed uint64, n int) string {
	rnd := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz "[rnd.IntN(27)]
	}
	return string(b)
}

// gauge reads a series from an engine's metrics page, summed over its labels.
func gauge(t *testing.T, base, name string) float64 {
	t.Helper()
	resp, err := http.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var sum float64
	found := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &v); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		sum, found = sum+v, true
	}
	if !found {
		t.Fatalf("%s has no %s", base, name)
	}
	return sum
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}
