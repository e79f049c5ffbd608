package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The benchmarks measure what a relaying process costs, so the engines and the
// clients must not run in it: they are this test binary again, in the role that
// roleEnv names.
const roleEnv = "TAUTLINE_BENCH_ROLE"

const benchClients = 200

// benchBody is a chat body of about 220 KB, the size of the public reports.
func benchBody() string {
	return `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("A plain sentence of a long prompt. ", 6300) + `"}]}`
}

// TestBenchRole is no test: it is the other processes of the benchmarks.
func TestBenchRole(t *testing.T) {
	role := strings.Fields(os.Getenv(roleEnv))
	if len(role) == 0 {
		t.Skip("runs only as a process of a benchmark")
	}
	switch role[0] {
	case "engine":
		benchEngine(t)
	case "load":
		n, _ := strconv.Atoi(role[3])
		c, _ := strconv.Atoi(role[2])
		benchLoad(t, role[1], c, n)
	}
}

// benchEngine answers every request at once with one event, as cheaply as it
// can: it reads what Content-Length says and looks at nothing.
func benchEngine(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("http://" + ln.Addr().String())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // ends with its parent
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\na\r\ndata: 12\n\n\r\n0\r\n\r\n"
	for {
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer func() { _ = c.Close() }()
			buf := make([]byte, 64<<10)
			for {
				if !skipRequest(c, buf) {
					return
				}
				if _, err := io.WriteString(c, answer); err != nil {
					return
				}
			}
		}()
	}
}

// skipRequest reads one request, which must have a Content-Length.
func skipRequest(c net.Conn, buf []byte) bool {
	n := 0
	for {
		m, err := c.Read(buf[n:])
		if n += m; err != nil {
			return false
		}
		end := bytes.Index(buf[:n], []byte("\r\n\r\n"))
		if end < 0 {
			continue
		}
		_, after, ok := strings.Cut(string(buf[:end+2]), "Content-Length: ")
		if !ok {
			return false
		}
		digits, _, _ := strings.Cut(after, "\r\n")
		length, _ := strconv.Atoi(digits)
		for left := length - (n - end - 4); left > 0; left -= m {
			if m, err = c.Read(buf[:min(left, len(buf))]); err != nil {
				return false
			}
		}
		return true
	}
}

// benchLoad sends n requests over c connections and prints nothing.
func benchLoad(t *testing.T, addr string, c, n int) {
	body := benchBody()
	request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range c {
		wg.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			buf := make([]byte, 4096)
			for left.Add(-1) >= 0 {
				if _, err := io.WriteString(conn, request); err != nil {
					t.Error(err)
					return
				}
				got := 0
				for !bytes.HasSuffix(buf[:got], []byte("\r\n0\r\n\r\n")) {
					m, err := conn.Read(buf[got:])
					if got += m; err != nil {
						t.Errorf("read: %v after %q", err, buf[:got])
						return
					}
				}
				if !bytes.HasPrefix(buf, []byte("HTTP/1.1 200")) {
					t.Errorf("answer %q", buf[:got])
					return
				}
			}
		})
	}
	wg.Wait()
}

// startRole runs this binary in a role.
func startRole(b *testing.B, role string) *exec.Cmd {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBenchRole$")
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

func startEngine(b *testing.B) string {
	b.Helper()
	cmd := startRole(b, "engine")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line := make([]byte, 100)
	n, err := out.Read(line)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(line[:n]))
}

// cpuTime is the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure sends b.N requests through addr from another process and reports what
// this process spent.
func measure(b *testing.B, addr string) {
	b.Helper()
	run := func(n int) {
		cmd := startRole(b, fmt.Sprintf("load %s %d %d", addr, benchClients, n))
		if out, err := cmd.Output(); err != nil {
			b.Fatalf("load: %v\n%s", err, out)
		}
	}
	run(benchClients * 2) // connections and pools are warm
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	run(b.N)
	b.StopTimer()
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/1e3, "cpu-us/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

// BenchmarkProxy220KB is the agent's data path with three engines that answer at once.
//
//	go test -run '^$' -bench 220KB -benchtime 5000x ./userspace/proxy
func BenchmarkProxy220KB(b *testing.B) {
	g := newRig(b)
	for i := range 3 {
		g.addURL(fmt.Sprint("gpu", i), startEngine(b))
	}
	measure(b, g.addr)
}

// BenchmarkReverseProxy220KB is the standard library's reverse proxy doing the
// same without choosing: the yardstick.
func BenchmarkReverseProxy220KB(b *testing.B) {
	u, err := url.Parse(startEngine(b))
	if err != nil {
		b.Fatal(err)
	}
	rp := httputil.NewSingleHostReverseProxy(u)
	rp.FlushInterval = -1
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1 << 20}
	defer t.CloseIdleConnections()
	rp.Transport = t
	ln, err := Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: rp}
	defer func() { _ = s.Close() }()
	go func() { _ = s.Serve(ln) }()
	measure(b, ln.Addr().String())
}
