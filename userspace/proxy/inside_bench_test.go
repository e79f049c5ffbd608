package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"
)

// BenchmarkFirstEvent is when a client has the head and the first event of a stream
// (p50), as the engine sends them: in one write, as h11 often does, in two, as uvloop
// does, or the event long behind the head; from an engine that may refuse inside and
// from another one.
//
//	go test -run '^$' -bench FirstEvent -benchtime 2000x -cpu 1 ./userspace/proxy
func BenchmarkFirstEvent(b *testing.B) {
	event := fmt.Sprintf("%x\r\n%s\r\n", len(sglangRole), sglangRole)
	for _, tc := range []struct {
		name  string
		parts []string
		pause time.Duration
	}{
		{"together", []string{sglangHead + event}, 0},
		{"apart", []string{sglangHead, event}, 0},
		{"late", []string{sglangHead, event}, 12 * time.Millisecond},
	} {
		for _, inside := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/inside=%v", tc.name, inside), func(b *testing.B) {
				n := b.N
				if tc.pause > 0 {
					n = min(n, 200)
				}
				g := newRig(b, func(o *Options) { o.RefusesInside = func(int) bool { return inside } })
				g.addRaw("a", func(c net.Conn) {
					br := bufio.NewReader(c)
					for {
						r, err := http.ReadRequest(br)
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, r.Body)
						for i, p := range tc.parts {
							if i > 0 && tc.pause > 0 {
								time.Sleep(tc.pause)
							}
							_, _ = io.WriteString(c, p)
						}
						_, _ = io.WriteString(c, "0\r\n\r\n")
					}
				})
				c, err := net.Dial("tcp", g.addr)
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				body := chat("x")
				request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				var heads, events []float64
				buf := make([]byte, 64<<10)
				b.ReportAllocs()
				b.ResetTimer()
				for range n {
					began := time.Now()
					if _, err := io.WriteString(c, request); err != nil {
						b.Fatal(err)
					}
					head, first := time.Duration(0), time.Duration(0)
					for got := 0; !bytes.HasSuffix(buf[:got], []byte("\r\n0\r\n\r\n")); {
						m, err := c.Read(buf[got:])
						if err != nil {
							b.Fatal(err)
						}
						got += m
						if head == 0 {
							head = time.Since(began)
						}
						if first == 0 && bytes.Contains(buf[:got], []byte("assistant")) {
							first = time.Since(began)
						}
					}
					heads, events = append(heads, head.Seconds()*1e6), append(events, first.Seconds()*1e6)
				}
				b.StopTimer()
				slices.Sort(heads)
				slices.Sort(events)
				b.ReportMetric(heads[n/2], "head-p50-us")
				b.ReportMetric(heads[n*99/100], "head-p99-us")
				b.ReportMetric(events[n/2], "event-p50-us")
			})
		}
	}
}
