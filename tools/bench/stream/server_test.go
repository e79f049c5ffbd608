package stream

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestMain lets the test binary be the server process.
func TestMain(m *testing.M) {
	if os.Getenv("STREAM_TEST_SERVER") != "" {
		if err := Main(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serve(t *testing.T) *Server {
	t.Helper()
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestStreamsAreExactOverOneConnection(t *testing.T) {
	s := serve(t)
	c := NewClient(s.Addr(), NewClock())
	defer c.Close()
	for stream := range uint32(20) {
		spec := Spec{Stream: stream, Tokens: 1 + int(stream), Bytes: 220, Every: 100 * time.Microsecond, Spread: stream%2 == 0, Responses: stream%3 == 0}
		n := 0
		f, first, err := c.Do(context.Background(), spec, spec.Body(1000), func(ch Chunk) {
			n++
			if ch.Latency < 0 {
				t.Errorf("chunk %d was read %s before it was written", ch.Seq, -ch.Latency)
			}
		})
		if err != nil || f.Any() {
			t.Fatalf("stream %d: %v, %s: %s", stream, err, f, first)
		}
		if n != spec.Tokens+2 {
			t.Errorf("stream %d: %d chunks", stream, n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) != 1 {
		t.Errorf("%d connections for one client", len(s.conns))
	}
}

func TestStopFinishesStreamsWhole(t *testing.T) {
	s := serve(t)
	var wg sync.WaitGroup
	var begun sync.WaitGroup
	begun.Add(20)
	for stream := range uint32(20) {
		wg.Go(func() {
			c := NewClient(s.Addr(), NewClock())
			defer c.Close()
			// Half of them would send for ever, half are silent.
			spec := Spec{Stream: stream, Tokens: 1 << 30, Bytes: 220, Every: time.Millisecond}
			if stream%2 == 0 {
				spec.Hold = 3
			}
			began := sync.OnceFunc(begun.Done)
			f, first, err := c.Do(context.Background(), spec, spec.Body(0), func(ch Chunk) {
				if ch.Seq >= 3 {
					began()
				}
			})
			if err != nil || f.Any() {
				t.Errorf("stream %d: %v, %s: %s", stream, err, f, first)
			}
		})
	}
	begun.Wait()
	s.Stop()
	wg.Wait()

	c := NewClient(s.Addr(), NewClock())
	defer c.Close()
	spec := Spec{Stream: 1, Tokens: 5, Bytes: 220, Every: time.Millisecond}
	count := func() (n int) {
		if f, first, err := c.Do(context.Background(), spec, spec.Body(0), func(Chunk) { n++ }); err != nil || f.Any() {
			t.Fatalf("%v, %s: %s", err, f, first)
		}
		return n
	}
	if n := count(); n != 3 { // role, first token, finish
		t.Errorf("stopped server sent %d chunks", n)
	}
	s.Go()
	if n := count(); n != 7 {
		t.Errorf("server that goes again sent %d chunks", n)
	}
}

func TestOneChunkOneWrite(t *testing.T) {
	s := serve(t)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec := Spec{Stream: 3, Tokens: 3, Bytes: 220, Every: 1}
	body := spec.Body(0)
	if _, err := io.WriteString(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+string(body)); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := bytes.Cut(all, []byte("\r\n\r\n"))
	if !ok {
		t.Fatalf("no head in %q", all)
	}
	// The framing as uvicorn writes it: each event is one HTTP chunk.
	for _, event := range append(events(spec), nil) {
		i := bytes.Index(rest, []byte("\r\n"))
		if i < 0 {
			t.Fatalf("no chunk in %q", rest)
		}
		if want := strconv.FormatInt(int64(len(event)), 16); string(rest[:i]) != want {
			t.Fatalf("chunk size %q, want %q", rest[:i], want)
		}
		rest = rest[i+2+len(event)+2:]
	}
	if len(rest) != 0 {
		t.Errorf("%q after the last chunk", rest)
	}
}

func TestOtherAnswers(t *testing.T) {
	s := serve(t)
	defer http.DefaultClient.CloseIdleConnections()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + s.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if code, body := get("/v1/models"); code != 200 || !strings.Contains(body, `"bench"`) {
		t.Errorf("models: %d %s", code, body)
	}
	if code, body := get("/metrics"); code != 200 || !strings.Contains(body, "vllm:num_requests_waiting") {
		t.Errorf("metrics: %d %s", code, body)
	}
	if code, _ := get("/health"); code != 200 {
		t.Errorf("health: %d", code)
	}
	if code, _ := get("/else"); code != 404 {
		t.Errorf("unknown path: %d", code)
	}
	post := func(body string) int {
		resp, err := http.Post("http://"+s.Addr()+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if code := post(`{"model":"bench"}`); code != 400 {
		t.Errorf("no spec: %d", code)
	}
	if code := post(string(Spec{Bytes: MinBytes, Every: 1}.Body(300_000))); code != 200 {
		t.Errorf("plain answer: %d", code)
	}
}

// TestCorruptingProxy has a proxy between server and client that breaks what it
// passes on, below the HTTP framing where a broken splice would.
func TestCorruptingProxy(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(n int, chunk []byte, last [][]byte) []byte // n-th HTTP chunk of the connection; earlier ones
		ok     func(Faults) bool
	}{
		"faithful": {func(_ int, c []byte, _ [][]byte) []byte { return c }, func(f Faults) bool { return !f.Any() }},
		"loses": {func(n int, c []byte, _ [][]byte) []byte {
			if n == 4 {
				return nil
			}
			return c
		}, func(f Faults) bool { return f == Faults{Lost: 1} }},
		"doubles": {func(n int, c []byte, _ [][]byte) []byte {
			if n == 4 {
				return bytes.Repeat(c, 2)
			}
			return c
		}, func(f Faults) bool { return f == Faults{Doubled: 1} }},
		"reorders": {func(n int, c []byte, last [][]byte) []byte {
			switch n {
			case 4:
				return nil
			case 5:
				return append(bytes.Clone(c), last[4]...)
			}
			return c
		}, func(f Faults) bool { return f == Faults{Reordered: 1} }},
		"mixes in another stream": {func(n int, c []byte, _ [][]byte) []byte {
			if n == 4 {
				return bytes.Replace(c, []byte("chatcmpl-00000007"), []byte("chatcmpl-00000008"), 1)
			}
			return c
		}, func(f Faults) bool { return f == Faults{Foreign: 1, Lost: 1} }},
		"cuts off": {func(n int, c []byte, _ [][]byte) []byte {
			if n >= 6 {
				return nil
			}
			return c
		}, func(f Faults) bool { return f.Truncated == 1 }},
		"writes a terminator over a damaged stream": {func(n int, c []byte, _ [][]byte) []byte {
			if n == 6 {
				return []byte("0\r\n\r\n")
			}
			return c
		}, func(f Faults) bool { return f.Truncated == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			addr := corrupt(t, s.Addr(), tc.change)
			c := NewClient(addr, NewClock())
			defer c.Close()
			f, first, err := c.Do(context.Background(), testSpec, testSpec.Body(0), func(Chunk) {})
			if err != nil {
				t.Fatal(err)
			}
			if !tc.ok(f) {
				t.Errorf("got %s: %s", f, first)
			}
		})
	}
}

// corrupt is a proxy for one connection and one response.
func corrupt(t *testing.T, upstream string, change func(int, []byte, [][]byte) []byte) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	wg.Go(func() {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", upstream)
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		wg.Go(func() { _, _ = io.Copy(server, client); server.Close() })
		r := bufio.NewReader(server)
		for line := ""; line != "\r\n"; { // the head
			if line, err = r.ReadString('\n'); err != nil {
				return
			}
			_, _ = io.WriteString(client, line)
		}
		var passed [][]byte
		for n := 0; ; n++ {
			size, err := r.ReadString('\n')
			if err != nil {
				return
			}
			length := 0
			for _, d := range strings.TrimSpace(size) {
				length = length<<4 | strings.IndexRune("0123456789abcdef", d)
			}
			chunk := append([]byte(size), make([]byte, length+2)...)
			if _, err := io.ReadFull(r, chunk[len(size):]); err != nil {
				return
			}
			passed = append(passed, chunk)
			if _, err := client.Write(change(n, chunk, passed)); err != nil || length == 0 {
				return // the end of the response: close, as nothing more is asked for
			}
		}
	})
	return ln.Addr().String()
}

func TestRefusalIsAnError(t *testing.T) {
	s := serve(t)
	c := NewClient(s.Addr(), NewClock())
	defer c.Close()
	_, _, err := c.Do(context.Background(), testSpec, []byte("{}"), func(Chunk) {})
	if err == nil || !strings.Contains(err.Error(), "status 400") {
		t.Errorf("got %v", err)
	}
}

func TestContextEndsAStream(t *testing.T) {
	s := serve(t)
	ctx, cancel := context.WithCancel(context.Background())
	c := NewClient(s.Addr(), NewClock())
	defer c.Close()
	spec := Spec{Stream: 1, Tokens: 1 << 30, Bytes: 220, Every: time.Millisecond}
	var seen atomic.Int64
	_, _, err := c.Do(ctx, spec, spec.Body(0), func(Chunk) {
		if seen.Add(1) == 3 {
			cancel()
		}
	})
	if err == nil {
		t.Error("a stream without end ended")
	}
}

func TestServerProcess(t *testing.T) {
	t.Setenv("STREAM_TEST_SERVER", "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(context.Background(), []string{self}, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient(p.Addr, NewClock())
	defer c.Close()
	f, first, err := c.Do(context.Background(), testSpec, testSpec.Body(0), func(ch Chunk) {
		if ch.Latency < 0 {
			t.Errorf("the clocks of two processes differ: %s", ch.Latency)
		}
	})
	if err != nil || f.Any() {
		t.Errorf("%v, %s: %s", err, f, first)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if err := p.Go(); err != nil {
		t.Error(err)
	}
	p.Close()
	if err := p.Stop(); err == nil {
		t.Error("an ended process obeys")
	}
	if conn, err := net.Dial("tcp", p.Addr); err == nil {
		conn.Close()
		t.Error("an ended process listens")
	}
	if _, err := Start(context.Background(), []string{"/bin/true"}, 1); err == nil {
		t.Error("a process that is no server was taken for one")
	}
}
