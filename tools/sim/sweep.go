package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/tautline/tautline/tools/sim/policies"
)

// Point is one place of a sweep: a scenario under a policy.
type Point struct {
	X        float64 // what is swept, for tables and charts
	Scenario Scenario
	Policy   policies.Policy
}

// Row is a point with its runs, one per seed.
type Row struct {
	X      float64  `json:"x"`
	Policy string   `json:"policy"`
	Runs   []Result `json:"runs"`
}

// Spread is a median with its range.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Of returns the spread of a figure over the row's runs. The median of an even
// number is the mean of the middle two.
func (r *Row) Of(figure func(*Result) float64) Spread {
	v := make([]float64, len(r.Runs))
	for i := range r.Runs {
		v[i] = figure(&r.Runs[i])
	}
	slices.Sort(v)
	n := len(v)
	if n == 0 {
		return Spread{}
	}
	return Spread{(v[n/2] + v[(n-1)/2]) / 2, v[0], v[n-1]}
}

// The figures that tables and charts show.
func p90(r *Result) float64        { return r.P90 }
func p50(r *Result) float64        { return r.P50 }
func throughput(r *Result) float64 { return r.Throughput }
func asked(r *Result) float64      { return float64(r.Arrived) }
func hitTokens(r *Result) float64  { return r.HitTokens }
func hitJobs(r *Result) float64    { return r.HitJobs }

// GCPercent is what a process that does nothing but simulate should give to
// debug.SetGCPercent. A run holds some 30 MB at most, but where a backlog grows
// it is all alive, and a collector that comes at each doubling costs a fifth.
const GCPercent = 400

// Sweep runs every point under seeds 1 to seeds, on as many processors as
// workers says (0 = all). done, when not nil, is called after each run, from
// one goroutine at a time. The rows are in the order of the points. Runs with
// the same seed see the same traffic. When the context ends first, the error wraps
// the context's.
func Sweep(ctx context.Context, points []Point, seeds, workers int, done func(finished, all int)) ([]Row, error) {
	return sweep(ctx, points, seeds, workers, nil, done)
}

// sweep is Sweep with a journal, which may be nil: runs that it knows are not
// made again.
func sweep(ctx context.Context, points []Point, seeds, workers int, journal *Journal, done func(finished, all int)) ([]Row, error) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	rows := make([]Row, len(points))
	type task struct{ point, seed int }
	var tasks []task
	for i, p := range points {
		rows[i] = Row{X: p.X, Policy: p.Policy.Name, Runs: make([]Result, seeds)}
	}
	for s := range seeds { // seed by seed: a journal that ends early has something of every point
		for i := range points {
			tasks = append(tasks, task{i, s})
		}
	}
	var (
		mu       sync.Mutex
		next     int
		finished int
		cut      int // ended by an error
		first    error
		wg       sync.WaitGroup
	)
	take := func() (task, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(tasks) || first != nil {
			return task{}, false
		}
		next++
		return tasks[next-1], true
	}
	for range min(workers, max(len(tasks), 1)) {
		wg.Go(func() {
			for {
				t, ok := take()
				if !ok {
					return
				}
				p, seed := &points[t.point], uint64(t.seed)+1
				res, ok := journal.known(p, seed)
				var err error
				if !ok {
					if res, err = Run(ctx, p.Scenario, p.Policy, seed); err == nil {
						journal.add(p, seed, res)
					}
				}
				mu.Lock()
				rows[t.point].Runs[t.seed] = res
				finished++
				if err != nil {
					cut++
				}
				if first == nil {
					first = err
				}
				if done != nil {
					done(finished, len(tasks))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if errors.Is(first, context.Canceled) { // each worker's last run is the one that was cut off
		first = fmt.Errorf("%w after %d of %d runs", first, finished-cut, len(tasks))
	}
	return rows, first
}
