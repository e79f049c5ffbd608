package sim

import (
	"math"
	"strings"
	"testing"
)

// In a closed loop who serves less has shorter queues: such a policy is a measure
// only for those that serve no more.
func TestTheBestServesAsMuch(t *testing.T) {
	rows := func(cells ...[2]float64) (out []Row) { // p90, asked
		for _, c := range cells {
			out = append(out, Row{Runs: []Result{{P90: c[0], Arrived: int(100 * c[1]), Throughput: c[1]}}})
		}
		return out
	}
	s := Study{Points: []StudyPoint{
		{Preset: "a", Load: 1, Knee: true, Rows: rows([2]float64{2.0, 10}, [2]float64{2.05, 9.5}, [2]float64{1.0, 9.4})},
		{Preset: "b", Load: 2, Knee: true, Rows: rows([2]float64{1.2, 10}, [2]float64{1.0, 10}, [2]float64{1.3, 10})},
		{Preset: "a", Load: 3, Rows: rows([2]float64{4.0, 10}, [2]float64{6.0, 10}, [2]float64{1.0, 8})},
		{Preset: "b", Load: 4, Rows: rows([2]float64{9.0, 10}, [2]float64{1.0, 10}, [2]float64{1.1, 9})},
	}}
	for i, want := range []Total{
		{Throughput: 2, WorstRate: 1, OverRate: 1,
			Serving: Gap{Within: 1, Within100: 1, Within300: 2, Excess: 0.2, ExcessAt: "b 2", Overload: 3, Far: 1},
			All:     Gap{Within: 0, Within100: 0, Within300: 1, Excess: 1, ExcessAt: "a 1", Overload: 6, Far: 2}},
		{Throughput: 2, WorstRate: 0.95, OverRate: 1,
			Serving: Gap{Within: 1, Within100: 1, Within300: 1, Excess: 1.05, ExcessAt: "a 1", Overload: math.Sqrt(1.5), Far: 1},
			All:     Gap{Within: 1, Within100: 1, Within300: 1, Excess: 1.05, ExcessAt: "a 1", Overload: math.Sqrt(6), Far: 1}},
		{Throughput: 1, WorstRate: 0.94, OverRate: 0.8,
			Serving: Gap{Within: 1, Within100: 1, Within300: 2, Excess: 0.3, ExcessAt: "b 2", Overload: math.Sqrt(1.1)},
			All:     Gap{Within: 1, Within100: 1, Within300: 2, Excess: 0.3, ExcessAt: "b 2", Overload: math.Sqrt(1.1)}},
	} {
		got := s.total(i, "p")
		want.Policy, want.Points, want.Over = "p", 2, 2
		got.Serving.logs, got.All.logs = 0, 0
		for _, f := range [][2]*float64{
			{&got.WorstRate, &want.WorstRate}, {&got.Serving.Excess, &want.Serving.Excess}, {&got.All.Excess, &want.All.Excess},
			{&got.Serving.Overload, &want.Serving.Overload}, {&got.All.Overload, &want.All.Overload},
		} {
			if math.Abs(*f[0]-*f[1]) < 1e-9 {
				*f[0] = *f[1]
			}
		}
		if got != want {
			t.Errorf("policy %d:\n%+v, want\n%+v", i, got, want)
		}
		s.Totals = append(s.Totals, got)
	}
	var b strings.Builder
	if err := s.Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, say := range []string{"2.00 (2.00 to 2.00) / 10 / 0", "at least 95 % of what this policy was", "best of all"} {
		if !strings.Contains(b.String(), say) {
			t.Errorf("the table does not say %q:\n%s", say, b.String())
		}
	}
}
