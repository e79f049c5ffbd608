package plan

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Table prints a report for people.
func (r Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what, format string, a ...any) { fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, a...)) }
	row("KV per token", "%.0f B", r.KVBytesPerToken)
	row("KV per prefix", "%.2f GiB", r.KVBytesPerPrefix/GiB)
	row("prefixes per server", "%d", r.PrefixesPerNode)
	row("peak prefill (R_peak)", "%.0f tokens/s", r.RPeak)
	row("cached request", "%.0f ms of prefill", 1000*r.CachedSec)
	row("cold request", "%.2f s, %.1f times as long", r.ColdSec, r.Ratio)
	row("break-even", "%.2f s of queue difference for the one request", r.BreakEvenSec)
	row("tau", "%d tokens = %.1f batches, %.1f times the break-even", r.Tau, r.Chunks, r.TauBreakEven)
	row("hottest prefix", "%.1f %% of requests; one server alone serves it up to %.1f requests/s", 100*r.HottestShare, r.HotSpotRate)
	row("round-robin", "%.0f %% hits; the fleet serves %.1f requests/s", 100*r.ColdHitRate, r.ColdCap)
	row("every request a hit", "the fleet serves %.1f requests/s", r.WarmCap)
	row("verdict", "%s", r.Verdict)
	return t.Flush()
}
