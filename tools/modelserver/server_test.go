package modelserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// quick is a Config whose steps take no time.
func quick() Config {
	c := Default()
	c.PrefillRate = 1e12
	c.TokenDelay = 0
	c.Created = 1700000000
	return c
}

func start(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// do sends one request and returns status and body. Connections are not kept.
func do(t *testing.T, method, url, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: body: %v", method, url, err)
	}
	return resp.StatusCode, string(b)
}

// get looks a dotted path up in a JSON document, such as "choices.0.text".
func get(t *testing.T, doc, path string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		t.Fatalf("%v in %.300s", err, doc)
	}
	for _, p := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[p]
		case []any:
			var i int
			if _, err := fmt.Sscan(p, &i); err != nil || i >= len(x) {
				t.Fatalf("no %q of %q in %.300s", p, path, doc)
			}
			v = x[i]
		default:
			t.Fatalf("no %q of %q in %.300s", p, path, doc)
		}
	}
	return v
}

type event struct{ name, data string }

func events(t *testing.T, body string) []event {
	t.Helper()
	var list []event
	var e event
	r := bufio.NewReader(strings.NewReader(body))
	for {
		line, err := r.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		switch {
		case err != nil:
			if line != "" {
				t.Fatalf("stream ends in a half event: %q", line)
			}
			return list
		case line == "":
			list = append(list, e)
			e = event{}
		case strings.HasPrefix(line, "event: "):
			e.name = line[7:]
		case strings.HasPrefix(line, "data: "):
			e.data = line[6:]
		default:
			t.Fatalf("unexpected line %q", line)
		}
	}
}

const hello = `{"model":"stand-in","messages":[{"role":"user","content":"hello"}]}`

func TestChatStreamedAndWholeAgree(t *testing.T) {
	for _, instant := range []bool{false, true} {
		t.Run(fmt.Sprint("instant=", instant), func(t *testing.T) {
			c := quick()
			c.Instant = instant
			s := start(t, c)
			url := s.URL() + "/v1/chat/completions"
			status, whole := do(t, "POST", url, hello)
			if status != 200 {
				t.Fatalf("status %d: %s", status, whole)
			}
			if instant {
				return // the text follows from the body's bytes there
			}
			again := strings.Replace(hello, `"model"`, `"stream":true,"stream_options":{"include_usage":true},"model"`, 1)
			_, body := do(t, "POST", url, again)
			var text strings.Builder
			list := events(t, body)
			for _, e := range list[:len(list)-2] {
				if d, ok := get(t, e.data, "choices.0.delta.content").(string); ok {
					text.WriteString(d)
				}
			}
			if want := get(t, whole, "choices.0.message.content"); text.String() != want {
				t.Errorf("streamed %q, whole %q", text.String(), want)
			}
			if got := get(t, list[len(list)-3].data, "choices.0.finish_reason"); got != "stop" {
				t.Errorf("finish_reason %v, want stop", got)
			}
			if got, want := get(t, list[len(list)-2].data, "usage.completion_tokens"), get(t, whole, "usage.completion_tokens"); got != want {
				t.Errorf("usage in stream %v, whole %v", got, want)
			}
			if list[len(list)-1].data != "[DONE]" {
				t.Errorf("last event %q, want [DONE]", list[len(list)-1].data)
			}
		})
	}
}

func TestSameRequestSameBytesFromEveryServer(t *testing.T) {
	c := quick()
	a, b := start(t, c), start(t, c)
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		body := hello
		if path == "/v1/completions" {
			body = `{"prompt":"once upon a time"}`
		}
		for _, stream := range []string{"", `"stream":true,`} {
			body := "{" + stream + body[1:]
			_, x := do(t, "POST", a.URL()+path, body, HeaderDeterministic, "1")
			_, y := do(t, "POST", b.URL()+path, body, HeaderDeterministic, "1")
			if x != y || x == "" {
				t.Errorf("%s %s:\n%s\n%s", path, stream, x, y)
			}
		}
	}
}

func TestCachedPrefixShowsInUsageAndMetrics(t *testing.T) {
	s := start(t, quick())
	prompt := func(tail string) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, strings.Repeat("0123456789abcdef", 400)+tail)
	}
	cached := func(body string) float64 {
		_, b := do(t, "POST", s.URL()+"/v1/chat/completions", body)
		return get(t, b, "usage.prompt_tokens_details.cached_tokens").(float64)
	}
	if got := cached(prompt("a")); got != 0 {
		t.Errorf("first request: %v tokens cached, want 0", got)
	}
	if got := cached(prompt("b")); got != 1600 {
		t.Errorf("same prefix: %v tokens cached, want 1600", got)
	}
	salted := strings.Replace(prompt("a"), "{", `{"cache_salt":"tenant",`, 1)
	if got := cached(salted); got != 0 {
		t.Errorf("with a salt: %v tokens cached, want 0", got)
	}
	if n := s.engine.snapshot(); n.CacheHits != 1600 {
		t.Errorf("counter of hits %v, want 1600", n.CacheHits)
	}
	s.Restart()
	if got := cached(prompt("b")); got != 0 {
		t.Errorf("after a restart: %v tokens cached, want 0", got)
	}
}

func TestClientThatLeavesIsAborted(t *testing.T) {
	for name, body := range map[string]string{
		"streamed": `{"stream":true,"max_tokens":1000000,"ignore_eos":true,"messages":[{"role":"user","content":"hello"}]}`,
		"whole":    `{"max_tokens":1000000,"ignore_eos":true,"messages":[{"role":"user","content":"hello"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := quick()
			c.TokenDelay = time.Millisecond
			c.CacheBlocks = 1 << 17
			c.MaxModelLen = 1 << 21
			s := start(t, c)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, "POST", s.URL()+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				resp, err := http.DefaultClient.Do(r)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			until(t, func() bool { return s.engine.snapshot().AnswerTokens > 0 })
			cancel()
			<-done
			until(t, func() bool { return s.engine.snapshot().Aborted == 1 })
			n := s.engine.snapshot()
			if n.Running != 0 || n.UsedBlocks != 0 {
				t.Errorf("after the abort: %d running, %d blocks in use; want none", n.Running, n.UsedBlocks)
			}
		})
	}
}

// until waits for cond, for as long as the test may take.
func until(t *testing.T, cond func() bool) {
	t.Helper()
	for !cond() {
		if t.Context().Err() != nil {
			t.Fatal("test ended before the condition held")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestFailuresOnDemand(t *testing.T) {
	s := start(t, quick())
	url := s.URL() + "/v1/chat/completions"
	if status, body := do(t, "POST", url, hello, HeaderStatus, "503"); status != 503 || get(t, body, "error.code") != 503.0 {
		t.Errorf("status on demand: %d %s", status, body)
	}
	streamed := `{"stream":true,` + hello[1:]
	for _, after := range []string{"0", "3"} {
		r, err := http.NewRequestWithContext(context.Background(), "POST", url, strings.NewReader(streamed))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(HeaderDieAfter, after)
		resp, err := http.DefaultClient.Do(r)
		if after == "0" {
			if err == nil {
				_ = resp.Body.Close()
				t.Error("died before the head, but a head came")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil || len(events(t, string(b))) != 3 {
			t.Errorf("died after 3 events: error %v, body %q", err, b)
		}
	}
	s.SetFault(Fault{Status: 429})
	if status, _ := do(t, "POST", url, hello); status != 429 {
		t.Errorf("with a fault set: %d, want 429", status)
	}
	s.SetFault(Fault{})
	if status, _ := do(t, "POST", url, hello); status != 200 {
		t.Errorf("with the fault taken back: %d, want 200", status)
	}
}

func TestRefusals(t *testing.T) {
	c := quick()
	c.MaxModelLen = 1000
	s := start(t, c)
	for name, tc := range map[string]struct {
		path, body string
		status     int
	}{
		"model":     {"/v1/chat/completions", `{"model":"other","messages":[{"role":"user","content":"x"}]}`, 404},
		"no json":   {"/v1/chat/completions", `{"model`, 400},
		"empty":     {"/v1/chat/completions", `{"messages":[]}`, 400},
		"too long":  {"/v1/completions", fmt.Sprintf(`{"prompt":%q}`, strings.Repeat("x", 5000)), 400},
		"no prompt": {"/v1/completions", `{}`, 400},
		"path":      {"/v1/nothing", `{}`, 404},
	} {
		if status, body := do(t, "POST", s.URL()+tc.path, tc.body); status != tc.status {
			t.Errorf("%s: status %d, want %d: %s", name, status, tc.status, body)
		}
	}
}
