package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
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

// benchRole is the main function of the other processes.
func benchRole(role string) error {
	var addr string
	var clients, n int
	var pause time.Duration
	if got, _ := fmt.Sscanf(role, "load %s %d %d %d", &addr, &clients, &n, &pause); got == 4 {
		return benchLoad(addr, clients, n, pause)
	}
	return benchEngine()
}

// benchEngine answers every request at once with one event, as cheaply as it
// can: it reads what Content-Length says and looks at nothing.
func benchEngine() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + ln.Addr().String())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // ends with its parent
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\na\r\ndata: 12\n\n\r\n0\r\n\r\n"
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
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

// benchLoad sends n requests over a number of connections and prints the median
// and the 99th percentile of the times to the first byte of an answer, in
// microseconds. Each client pauses before each request.
func benchLoad(addr string, clients, n int, pause time.Duration) error {
	body := benchBody()
	request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	var left atomic.Int64
	left.Store(int64(n))
	type result struct {
		times []time.Duration
		err   error
	}
	results := make(chan result, clients)
	for range clients {
		go func() {
			times, err := benchClient(addr, request, &left, pause)
			results <- result{times, err}
		}()
	}
	var all []time.Duration
	var err error
	for range clients {
		r := <-results
		all, err = append(all, r.times...), errors.Join(err, r.err)
	}
	if err != nil || len(all) == 0 {
		return err
	}
	slices.Sort(all)
	fmt.Println(all[len(all)/2].Microseconds(), all[len(all)*99/100].Microseconds())
	return nil
}

// benchClient sends requests one after the other until none is left.
func benchClient(addr, request string, left *atomic.Int64, pause time.Duration) ([]time.Duration, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	var times []time.Duration
	buf := make([]byte, 4096)
	for left.Add(-1) >= 0 {
		if pause > 0 {
			time.Sleep(pause/2 + rand.N(pause)) // out of step with the others
		}
		begin := time.Now()
		if _, err := io.WriteString(conn, request); err != nil {
			return nil, err
		}
		got := 0
		for !bytes.HasSuffix(buf[:got], []byte("\r\n0\r\n\r\n")) {
			m, err := conn.Read(buf[got:])
			if got == 0 {
				times = append(times, time.Since(begin))
			}
			if got += m; err != nil {
				return nil, fmt.Errorf("%w after %q", err, buf[:got])
			}
		}
		if !bytes.HasPrefix(buf, []byte("HTTP/1.1 200")) {
			return nil, fmt.Errorf("answer %q", buf[:got])
		}
	}
	return times, nil
}

// startRole runs this binary in a role.
func startRole(b *testing.B, role string) *exec.Cmd {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

func startEngine(b *testing.B) string {
	b.Helper()
	_, out := testutil.Start(b, startRole(b, "engine"))
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

// sendLoad runs n requests from another process; see benchLoad.
func sendLoad(b *testing.B, addr string, clients, n int, pause time.Duration) (p50, p99 float64) {
	b.Helper()
	out, err := startRole(b, fmt.Sprintf("load %s %d %d %d", addr, clients, n, pause)).Output()
	if err != nil {
		b.Fatalf("load: %v", err)
	}
	if _, err := fmt.Sscan(string(out), &p50, &p99); err != nil {
		b.Fatalf("load printed %q: %v", out, err)
	}
	return p50, p99
}

// measure sends b.N requests through addr as fast as they go and reports what
// this process spent.
func measure(b *testing.B, addr string) {
	b.Helper()
	sendLoad(b, addr, benchClients, benchClients*2, 0) // connections and pools are warm
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime()
	sendLoad(b, addr, benchClients, b.N, 0)
	b.StopTimer()
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/1e3, "cpu-us/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

// BenchmarkFirstByte220KB is what the agent adds to the time to the first byte
// for 20 clients that pause between requests.
//
//	go test -run '^$' -bench FirstByte -benchtime 2000x ./userspace/proxy
func BenchmarkFirstByte220KB(b *testing.B) {
	const clients, pause = 20, 100 * time.Millisecond
	g := newRig(b)
	var engine string
	for i := range 3 {
		engine = startEngine(b)
		g.addURL(fmt.Sprint("gpu", i), engine)
	}
	engine = strings.TrimPrefix(engine, "http://")
	sendLoad(b, g.addr, clients, clients*5, pause)
	sendLoad(b, engine, clients, clients*5, pause)
	b.ResetTimer()
	direct, directTail := sendLoad(b, engine, clients, b.N, pause)
	relayed, relayedTail := sendLoad(b, g.addr, clients, b.N, pause)
	b.ReportMetric(direct, "direct-p50-us")
	b.ReportMetric(directTail, "direct-p99-us")
	b.ReportMetric(relayed, "relayed-p50-us")
	b.ReportMetric(relayedTail, "relayed-p99-us")
	b.ReportMetric(relayed-direct, "added-p50-us")
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
