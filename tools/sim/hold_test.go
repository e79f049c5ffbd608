package sim

import (
	"context"
	"testing"

	"github.com/tautline/tautline/tools/sim/traffic"
)

// With more contexts than memory, a queue in the engines evicts those of the
// conversations that pause. At the agent those go on that are cached.
func TestHoldingKeepsContextsCached(t *testing.T) {
	var points []Point
	for _, p := range named(t, "priced-spread", "priced-spread-holding") {
		points = append(points, Point{0, preset(t, "agentic", 60, 300), p}, Point{0, preset(t, "agentic", 20, 100), p})
	}
	rows, err := Sweep(context.Background(), points, 3, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	engines, agent := &rows[0], &rows[2]
	t.Logf("p90 %.2f s, held %.2f s; hits %.3f, %.3f; %.2f and %.2f answers per second", engines.Of(p90).Median, agent.Of(p90).Median,
		engines.Of(hitTokens).Median, agent.Of(hitTokens).Median, engines.Of(throughput).Median, agent.Of(throughput).Median)
	if a, b := engines.Of(p90).Median, agent.Of(p90).Median; b > 0.75*a {
		t.Errorf("p90 %.2f s in the engines' queues, %.2f s at the agent", a, b)
	}
	if a, b := engines.Of(throughput).Median, agent.Of(throughput).Median; b < 1.03*a {
		t.Errorf("%.2f answers per second from the engines' queues, %.2f from the agent", a, b)
	}
	for s := range 3 { // where there is memory nobody waits for it
		a, b := rows[1].Runs[s], rows[3].Runs[s]
		a.Policy, a.Outcomes, b.Outcomes = b.Policy, nil, nil
		if a.P90 != b.P90 || a.Arrived != b.Arrived || a.Mean != b.Mean {
			t.Errorf("seed %d below the knee: %+v, held %+v", s+1, a, b)
		}
	}
}

// watched is a chooser of priced-spread-holding that looks at what waits.
type watched struct {
	traffic.Source
	r     *run
	most  int
	worst Instant
}

// Next is asked for at each event.
func (w *watched) Next() Instant {
	t := w.Source.Next()
	w.most = max(w.most, w.r.holding())
	return t
}

func (w *watched) Done(j *traffic.Job, now Instant) {
	w.worst = max(w.worst, j.First-j.Arrive)
	w.Source.Done(j, now)
}

// Whatever comes after it, a request leaves the agent; and none is lost.
func TestNobodyStarvesAtTheAgent(t *testing.T) {
	sc := preset(t, "agentic", 90, 400)
	r := newRun(&sc, named(t, "priced-spread-holding")[0], 3)
	w := &watched{Source: r.source, r: r}
	r.source = w
	if err := r.loop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r.alive != 0 || r.holding() != 0 {
		t.Errorf("%d jobs left, %d of them at the agent", r.alive, r.holding())
	}
	if w.most < 20 {
		t.Errorf("%d waited at most: the test proves nothing", w.most)
	}
	if limit := heldLimit + heldLimit; w.worst > limit {
		t.Errorf("one waited %v for its first token, want the limit of %v and a queue", w.worst, heldLimit)
	}
}

// A backend that dies sends its requests back, which wait like any other.
func TestHeldThroughAnOutage(t *testing.T) {
	sc := preset(t, "agentic", 60, 200)
	sc.Outages = []Outage{{Slot: 2, From: sc.Until / 2, To: sc.Until/2 + sc.Until/10}}
	r := newRun(&sc, named(t, "priced-spread-holding")[0], 1)
	if err := r.loop(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if res := r.result(); res.Unfinished != 0 || res.Retried == 0 || r.holding() != 0 {
		t.Errorf("%+v", res)
	}
}
