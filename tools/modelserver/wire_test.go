package modelserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
)

// rawChunks sends a request over a connection of its own and returns the head
// of the answer and its HTTP chunks.
func rawChunks(t *testing.T, s *Server, path, body string) (head string, chunks []string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	line := func() string {
		l, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for l := line(); l != "\r\n"; l = line() {
		head += l
	}
	for {
		n, err := strconv.ParseInt(strings.TrimSpace(line()), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return head, chunks
		}
		chunks = append(chunks, string(b[:n]))
	}
}

// TestAFullQueue: 503 before anything is done; of SGLang's streams it stands inside.
func TestAFullQueue(t *testing.T) {
	const inside = `data: {"error": {"object": "error", "message": "The request queue is full.", "type": "SERVICE_UNAVAILABLE", "param": null, "code": 503}}` + "\n\ndata: [DONE]\n\n"
	for _, engine := range []string{VLLM, SGLang} {
		c := quick()
		c.Engine = engine
		s := start(t, c)
		for _, route := range []string{"chat/completions", "completions", "messages", "responses"} {
			for _, stream := range []bool{false, true} {
				body := fmt.Sprintf(`{"stream":%v,"max_tokens":9,"prompt":"x","input":"x",%s`, stream, hello[1:])
				code, text := do(t, "POST", s.URL()+"/v1/"+route, body, HeaderFull, "yes")
				if engine == SGLang && stream && strings.HasSuffix(route, "completions") {
					if code != 200 || text != inside {
						t.Errorf("%s of %s, streamed: %d %q", route, engine, code, text)
					}
				} else if code != 503 || !strings.Contains(text, "queue is full") {
					t.Errorf("%s of %s, streamed %v: %d %q", route, engine, stream, code, text)
				}
			}
		}
		s.SetFault(Fault{Full: true})
		if code, _ := do(t, "POST", s.URL()+"/v1/chat/completions", hello); code != 503 {
			t.Errorf("%s, from the start: %d", engine, code)
		}
	}
}

// TestTheQueueIsLimited: to those that wait; who runs does not count.
func TestTheQueueIsLimited(t *testing.T) {
	c := quick()
	c.MaxSeqs, c.MaxQueued, c.TokenDelay = 1, 1, time.Millisecond
	s := start(t, c)
	const long = `{"prompt":"x","max_tokens":100000,"min_tokens":100000}`
	for n, want := range []Stats{{Running: 1}, {Running: 1, Waiting: 1}} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, err := http.NewRequestWithContext(ctx, "POST", s.URL()+"/v1/completions", strings.NewReader(long))
			if err != nil {
				return
			}
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		}()
		defer func() { cancel(); <-done }()
		testutil.Eventually(t, fmt.Sprintf("%d requests are in", n+1), func() bool {
			got := s.Stats()
			return got.Running == want.Running && got.Waiting == want.Waiting
		})
	}
	if code, _ := do(t, "POST", s.URL()+"/v1/completions", long); code != 503 {
		t.Errorf("the third got %d, want 503", code)
	}
}

// TestWhenTheHeadOfAStreamComes: vLLM's before its first token, SGLang's with it.
func TestWhenTheHeadOfAStreamComes(t *testing.T) {
	for engine, before := range map[string]bool{VLLM: true, SGLang: false} {
		c := quick()
		c.Engine, c.PrefillRate = engine, 1e-3 // the first token takes hours
		s := start(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "POST", s.URL()+"/v1/chat/completions", strings.NewReader(`{"stream":true,`+hello[1:]))
		if err != nil {
			t.Fatal(err)
		}
		came := make(chan bool, 1)
		go func() {
			resp, err := http.DefaultClient.Do(r)
			if err == nil {
				_ = resp.Body.Close()
			}
			came <- err == nil
		}()
		if before {
			<-came
			continue
		}
		testutil.Eventually(t, "the request runs", func() bool { return s.Stats().Running == 1 })
		cancel()
		if <-came {
			t.Errorf("the head of %s came before its first event", engine)
		}
	}
}

func TestEachEventIsAnHTTPChunk(t *testing.T) {
	s := start(t, quick())
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"stream":true,` + hello[1:],
		"/v1/completions":      `{"stream":true,"prompt":"x"}`,
		"/v1/messages":         `{"stream":true,"max_tokens":9,` + hello[1:],
		"/v1/responses":        `{"stream":true,"input":"x"}`,
	} {
		head, chunks := rawChunks(t, s, path, body)
		if !strings.HasPrefix(head, "HTTP/1.1 200 ") || !strings.Contains(head, "Content-Type: text/event-stream; charset=utf-8\r\n") ||
			!strings.Contains(head, "Transfer-Encoding: chunked\r\n") {
			t.Errorf("%s: head %q", path, head)
		}
		for i, k := range chunks {
			if strings.Count(k, "\n\n") != 1 || !strings.HasSuffix(k, "\n\n") {
				t.Errorf("%s: chunk %d is %q, want one event", path, i, k)
			}
		}
		if len(chunks) < 5 {
			t.Errorf("%s: %d chunks", path, len(chunks))
		}
	}
}

func TestPingsFillTheWaitForTheFirstToken(t *testing.T) {
	c := quick()
	c.PingInterval = time.Millisecond
	s := start(t, c)
	body := `{"stream":true,"max_tokens":9,` + hello[1:]
	_, b := do(t, "POST", s.URL()+"/v1/messages", body, HeaderStallAfter, "1", HeaderStall, "1ms")
	if list := events(t, b); list[len(list)-1].name != "message_stop" {
		t.Errorf("last event %q, want message_stop", list[len(list)-1].name)
	}
	slow := c
	slow.PrefillRate = 1e-6
	s = start(t, slow)
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	for range 3 {
		for _, want := range []string{"event: ping\n", "data: {\"type\":\"ping\"}\n", "\n"} {
			if got, err := in.ReadString('\n'); err != nil || got != want {
				t.Fatalf("line %q, %v; want %q", got, err, want)
			}
		}
	}
}

func TestStallUntilTheClientLeaves(t *testing.T) {
	for name, header := range map[string][]string{
		"before the head": {HeaderStall, "forever"},
		"in the stream":   {HeaderStall, "forever", HeaderStallAfter, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := quick()
			s := start(t, c)
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			body := `{"stream":true,` + hello[1:]
			var h strings.Builder
			for i := 0; i < len(header); i += 2 {
				fmt.Fprintf(&h, "%s: %s\r\n", header[i], header[i+1])
			}
			if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n%s", h.String(), len(body), body); err != nil {
				t.Fatal(err)
			}
			until(t, func() bool { return s.Requests()["chat"] == 1 })
			if name == "in the stream" {
				in := bufio.NewReader(conn)
				for n := 0; n < 2; {
					l, err := in.ReadString('\n')
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(l, "data: ") {
						n++
					}
				}
			}
			_ = conn.Close()
			until(t, func() bool { n := s.Stats(); return n.Running == 0 && n.Waiting == 0 })
			// Another request is answered: nothing of the first holds the engine.
			if status, _ := do(t, "POST", s.URL()+"/v1/chat/completions", hello); status != 200 {
				t.Errorf("after the stall: status %d", status)
			}
		})
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	c := quick()
	c.PrefillRate = 1e-6
	s := start(t, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := http.Post(s.URL()+"/v1/chat/completions", "application/json", strings.NewReader(hello))
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	until(t, func() bool { return s.Stats().Running == 1 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

func TestMetricsPages(t *testing.T) {
	for engine, want := range map[string][]string{
		VLLM: {
			"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info",
			"vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "vllm:prompt_tokens_total", "process_start_time_seconds",
		},
		SGLang: {
			"sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage", "sglang:max_total_num_tokens", "process_start_time_seconds",
		},
	} {
		c := quick()
		c.Engine = engine
		s := start(t, c)
		do(t, "POST", s.URL()+"/v1/chat/completions", hello)
		_, b := do(t, "GET", s.URL()+"/metrics", "")
		var names []string
		for _, line := range strings.Split(b, "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			name, _, _ := strings.Cut(line, "{")
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
			value := line[strings.LastIndexByte(line, ' ')+1:]
			if _, err := strconv.ParseFloat(value, 64); err != nil {
				t.Errorf("%s: line %q has no value", engine, line)
			}
		}
		for _, n := range want {
			if !slices.Contains(names, n) {
				t.Errorf("%s: no %s in\n%s", engine, n, b)
			}
		}
		if !strings.Contains(b, `modelserver:requests_total{route="chat"} 1`) {
			t.Errorf("%s: the request is not counted:\n%s", engine, b)
		}
	}
}
