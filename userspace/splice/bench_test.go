package splice_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a chunk costs the agent's process, spliced and through the same copy loop in
// Go: 50 streams, 50 chunks a second each, 220 bytes.
//
//	go test ./userspace/splice -run '^$' -bench Chunk -benchtime 20000x
func BenchmarkChunk(b *testing.B) {
	for _, kind := range []string{"spliced", "copied"} {
		b.Run(kind, func(b *testing.B) {
			needRoot(b)
			if kind == "copied" {
				b.Setenv(copyEnv, "1")
			}
			const streams, pace = 50, 20 * time.Millisecond
			each := max(b.N/streams, 2)
			e := newEngine(b, func(c net.Conn, req *http.Request) bool {
				n, err := strconv.Atoi(strings.TrimPrefix(req.URL.Path, "/"))
				ok := err == nil && send(c, head)
				tick := time.NewTicker(pace)
				defer tick.Stop()
				m := chunk(token("s", 0, 220))
				for range n {
					<-tick.C
					ok = ok && send(c, m)
				}
				return ok && send(c, last)
			})
			a := startAgent(b, "", nil)
			r := &rig{t: b, addr: a.line}
			run := func(chunks int) {
				var wg sync.WaitGroup
				for range streams {
					p := r.dial(b)
					if err := p.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
						b.Fatal(err)
					}
					p.ask(b, e, fmt.Sprintf("/%d", chunks))
					wg.Go(func() {
						resp, err := http.ReadResponse(p.br, nil)
						if err != nil {
							b.Error(err)
							return
						}
						if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != int64(220*chunks) {
							b.Errorf("%d bytes, %v", n, err)
						}
					})
				}
				wg.Wait()
			}
			run(2) // connections and pages are there
			before := ticks(b, a.cmd.Process.Pid)
			b.ResetTimer()
			run(each)
			b.StopTimer()
			used := ticks(b, a.cmd.Process.Pid) - before
			b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(each*streams), "agent-us/chunk")
		})
	}
}
