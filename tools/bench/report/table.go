package report

import (
	"fmt"
	"io"
	"strings"
)

// column is one column of a table.
type column struct {
	head string
	cell func(Row) string
}

func number(format string, scale float64, get func(Row) Value) func(Row) string {
	return func(r Row) string {
		v := get(r)
		if !v.OK {
			return "-"
		}
		return fmt.Sprintf(format, v.X/scale)
	}
}

// Table prints the summary for people.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	s := r.Settings
	fmt.Fprintf(&b, "%d CPUs, kernel %s, %s; medians of %d rounds", r.Host.CPUs, r.Host.Kernel, r.Host.Go, s.Rounds)
	if s.Hogs > 0 {
		fmt.Fprintf(&b, "; %d processes used a CPU each meanwhile", s.Hogs)
	}
	b.WriteByte('\n')
	ref := r.Reference()
	if r.measured(func(p Path) bool { return len(p.Streams) > 0 }) {
		fmt.Fprintf(&b, "\nPaced streams (%s): %d x %.4g chunks/s of %d bytes (%s), %d tokens a response, %.3g s a round; server write to client read\n",
			s.API, s.Streams, s.Rate, s.ChunkBytes, s.Pattern, s.Tokens, s.Seconds)
		r.table(&b, []column{
			{"p50 ms", number("%.3f", 1e3, func(r Row) Value { return r.P50 })},
			{"p90 ms", number("%.3f", 1e3, func(r Row) Value { return r.P90 })},
			{"p99 ms", number("%.3f", 1e3, func(r Row) Value { return r.P99 })},
			{"max ms", number("%.1f", 1e3, func(r Row) Value { return r.Max })},
			{"added p50 ms", number("%+.3f", 1e3, func(r Row) Value { return r.AddedP50 })},
			{"router us/chunk", number("%.2f", 1, func(r Row) Value { return r.RouterCPU })},
			{"server us/chunk", number("%.2f", 1, func(r Row) Value { return r.ServerCPU })},
			{"machine busy", number("%.0f%%", 0.01, func(r Row) Value { return r.Busy })},
			{"chunks/s", number("%.0f", 1, func(r Row) Value { return r.PerSec })},
			{"switches/resp", number("%.1f", 1, func(r Row) Value { return r.Switches })},
			{"spliced", number("%.2f%%", 0.01, func(r Row) Value { return r.Spliced })},
		})
		if ref != "" {
			fmt.Fprintf(&b, "\nAgainst %s in the same round (1 = the same)\n", ref)
			r.table(&b, []column{
				{"router cpu/chunk", number("%.3f", 1, func(r Row) Value { return r.CPURatio })},
				{"added p50", number("%.3f", 1, func(r Row) Value { return r.AddedRatio })},
				{"p99", number("%.3f", 1, func(r Row) Value { return r.P99Ratio })},
			})
		}
	}
	if r.measured(func(p Path) bool { return len(p.Requests)+len(p.TTFT) > 0 }) {
		fmt.Fprintf(&b, "\nRequests: bodies of %d bytes; load: %d at once, answered at once; first token: %d streams at once\n",
			s.BodyBytes, s.Concurrency, s.TTFTStreams)
		r.table(&b, []column{
			{"req/s", number("%.0f", 1, func(r Row) Value { return r.Requests })},
			{"p50 ms", number("%.2f", 1e3, func(r Row) Value { return r.RequestP50 })},
			{"p99 ms", number("%.2f", 1e3, func(r Row) Value { return r.RequestP99 })},
			{"router us/req", number("%.0f", 1, func(r Row) Value { return r.RequestCPU })},
			{"ttft p50 ms", number("%.3f", 1e3, func(r Row) Value { return r.TTFT })},
			{"ttft p99 ms", number("%.3f", 1e3, func(r Row) Value { return r.TTFTP99 })},
			{"added ttft p50 ms", number("%+.3f", 1e3, func(r Row) Value { return r.AddedTTFT })},
		})
	}
	if r.measured(func(p Path) bool { return p.Idle != nil }) {
		fmt.Fprintf(&b, "\nMemory: %d open, silent streams\n", s.IdleStreams)
		r.table(&b, []column{
			{"router MiB before", number("%.1f", 1<<20, func(r Row) Value { return r.RSS })},
			{"KiB/stream", number("%.1f", 1<<10, func(r Row) Value { return r.PerIdleStream })},
		})
	}
	b.WriteString("\n")
	r.caution(&b)
	r.verdict(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) measured(has func(Path) bool) bool {
	for _, p := range r.Paths {
		if has(p) {
			return true
		}
	}
	return false
}

// table prints a row for each path: its name to the left, figures to the right.
func (r *Report) table(w io.Writer, columns []column) {
	lines := [][]string{{"path"}}
	for _, c := range columns {
		lines[0] = append(lines[0], c.head)
	}
	for _, row := range r.Summary {
		line := []string{row.Path}
		for _, c := range columns {
			line = append(line, c.cell(row))
		}
		lines = append(lines, line)
	}
	widths := make([]int, len(columns)+1)
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, line := range lines {
		fmt.Fprintf(w, "%-*s", widths[0], line[0])
		for i, cell := range line[1:] {
			fmt.Fprintf(w, "  %*s", widths[i+1], cell)
		}
		fmt.Fprintln(w)
	}
}

// saturated is the share of all CPUs above which queues, not routers, make the
// latency, and above which a router saves CPU by finding several chunks at once.
const saturated = 0.95

// caution says when the figures say little.
func (r *Report) caution(w io.Writer) {
	var full []string
	for _, row := range r.Summary {
		if row.Busy.OK && row.Busy.X > saturated {
			full = append(full, row.Path)
		}
	}
	if len(full) > 0 {
		fmt.Fprintf(w, "caution: the machine was saturated (%s): compare again with fewer --streams, or when it is quiet\n", strings.Join(full, ", "))
	}
}

// verdict says what was checked, what was wrong and what was left out.
func (r *Report) verdict(w io.Writer) {
	for _, p := range r.Paths {
		chunks, responses := 0, 0
		for _, s := range p.Streams {
			chunks += s.AllChunks
			responses += s.AllResponses
		}
		sum := p.faults()
		failed, first := p.failures()
		switch {
		case failed > 0 || sum.Any():
			fmt.Fprintf(w, "%s: NOT EXACT: %s; %d failed; first: %s\n", p.Name, sum, failed, first)
		case len(p.Streams) > 0:
			fmt.Fprintf(w, "%s: every byte right in %d chunks of %d responses\n", p.Name, chunks, responses)
		}
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "%s: not measured: %s\n", s.Name, s.Why)
	}
}
