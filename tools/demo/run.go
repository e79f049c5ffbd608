package demo

import (
	"context"
	"sync"
	"time"

	"github.com/tautline/tautline/tools/bench/load"
)

// clients is the number of conversations at a time, burst the size of the
// bursts behind the hot prompt.
const (
	clients    = 24
	burst      = 24
	burstEvery = 3 * time.Second
)

// Report is what a run of the load measured from outside.
type Report struct {
	Took   time.Duration
	Total  load.Summary
	ByKind map[string]*load.Summary
	CPU    time.Duration // of the agent's process
	Wire   int64         // bytes that the clients received, with heads and framing
}

// Run sends the load for a while and measures.
func (f *Fleet) Run(ctx context.Context, d time.Duration, seed uint64) Report {
	r := Report{ByKind: map[string]*load.Summary{}}
	var mu sync.Mutex
	add := func(res load.Result) {
		mu.Lock()
		defer mu.Unlock()
		r.Total.Add(res)
		s := r.ByKind[res.Kind]
		if s == nil {
			s = &load.Summary{}
			r.ByKind[res.Kind] = s
		}
		s.Add(res)
	}
	c := load.NewClient(f.URL, clients+burst)
	defer c.Close()
	w := New("stand-in", seed)
	begin, cpu := time.Now(), f.agent.cpu()
	end := begin.Add(d)

	var wg sync.WaitGroup
	wg.Go(func() {
		load.Closed(ctx, c, clients, func(client, _ int) (load.Request, bool) {
			return w.Next(client), time.Now().Before(end)
		}, add)
	})
	wg.Go(func() {
		for round := 0; ; round++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(burstEvery, d/4)):
			}
			if !time.Now().Before(end) {
				return
			}
			for _, q := range w.Burst(burst, round) {
				wg.Go(func() {
					if res := c.Do(ctx, q); ctx.Err() == nil {
						add(res)
					}
				})
			}
		}
	})
	wg.Wait()
	r.Wire = c.Received()
	r.Took, r.CPU = time.Since(begin), f.agent.cpu()-cpu
	return r
}
