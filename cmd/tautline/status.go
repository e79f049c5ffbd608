package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/agent/telemetry"
)

func newStatus() *cobra.Command {
	c := &cobra.Command{
		Use:     "status",
		Short:   "Show what a running agent knows and does",
		Long:    "Show what a running agent knows and does. Exits 3 when no agent answers or\nno backend is admitted.",
		Example: "  tautline status\n  tautline status --watch\n  tautline status -o json | jq .splice",
		Args:    noArgs,
	}
	o, admin := addOutput(c), addAdmin(c)
	watch := c.Flags().Bool("watch", false, "print again every second until interrupted, whatever happens to the agent")
	c.RunE = func(c *cobra.Command, _ []string) error {
		show := func() error {
			s, err := admin.status(c.Context())
			if err != nil {
				return err
			}
			if *o == "json" {
				err = printJSON(c.OutOrStdout(), s)
			} else {
				err = printStatus(c.OutOrStdout(), s)
			}
			if err == nil && !slices.ContainsFunc(s.Backends, func(b telemetry.BackendStatus) bool { return b.Admitted }) {
				err = unhealthy("no backend is admitted")
			}
			return err
		}
		if !*watch {
			return show()
		}
		return every(c.Context(), time.Second, func() error {
			if f, ok := c.OutOrStdout().(*os.File); *o == "table" && ok && terminal(f) {
				fmt.Fprint(f, "\x1b[H\x1b[2J")
			}
			err := show()
			switch code := (coded{}); {
			case err == nil || c.Context().Err() != nil:
				return nil
			case errors.As(err, &code) && code.code == exitUsage:
				return err
			}
			fmt.Fprintln(c.ErrOrStderr(), "tautline:", err) // an outage is what one watches for
			return nil
		})
	}
	return c
}

func newBackends() *cobra.Command {
	c := &cobra.Command{
		Use:     "backends",
		Short:   "List the backends of a running agent",
		Example: "  tautline backends\n  tautline backends -o json",
		Args:    noArgs,
	}
	o, admin := addOutput(c), addAdmin(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		s, err := admin.status(c.Context())
		if err != nil {
			return err
		}
		if *o == "json" {
			return printJSON(c.OutOrStdout(), s.Backends)
		}
		return printBackends(c.OutOrStdout(), s.Backends)
	}
	return c
}

// every calls f now and each interval until ctx ends or f fails.
func every(ctx context.Context, interval time.Duration, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := f(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func printStatus(w io.Writer, s telemetry.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(k, format string, a ...any) { fmt.Fprintf(t, "%s\t%s\n", k, fmt.Sprintf(format, a...)) }
	line("version", "%s, up %s", s.Version, time.Duration(s.UptimeSeconds*float64(time.Second)).Round(time.Second))
	line("site", "%s, listening on %s", s.Site, s.Listen)
	line("policy", "%s, tau %d tokens", s.Policy, s.TauTokens)
	held := 0
	if s.Hold != nil {
		held = s.Hold.Held
	}
	line("requests", "%d in flight", max(s.ActiveStreams-int64(held), 0)) // the two are counted one after the other
	if s.Hold != nil {
		line("held", "%s", heldLine(s.Hold))
	}
	if s.Draining {
		line("draining", "yes: no new connections")
	}
	if !s.TagKey {
		line("stored ids", "not signed: prefix_affinity.tag_key_path is not set")
	}
	if len(s.PinVerdicts) > 0 {
		line("pinned", "%s", tally(s.PinVerdicts))
	}
	if s.Shared {
		line("others", "%s", othersLine(s))
	}
	line("decisions", "%s", tally(choices(s.Backends)))
	line("splice", "%s", spliceLine(s.Splice))
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return printBackends(w, s.Backends)
}

func heldLine(h *telemetry.Hold) string {
	text := fmt.Sprintf("%d in the agent, for %s at most", h.Held, time.Duration(h.LimitSeconds*float64(time.Second)))
	if h.Waited != nil {
		text += fmt.Sprintf("; %d so far, half of them for %s or less", h.Waited.Count, median(h.Waited))
	}
	return text
}

func othersLine(s telemetry.Status) string {
	text := "send requests to the backends too"
	switch {
	case s.Policy != "priced-spread":
	case !s.SharedKeys:
		text += "; with the same prefix_affinity.hash_key_path agents agree where new prompts go"
	case s.Unlike:
		text += "; where prompts hardly ever begin alike each agent prefers backends that the others leave to it"
	}
	return text
}

func spliceLine(s telemetry.SpliceStatus) string {
	text := s.State
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	if s.State == "on" {
		text += fmt.Sprintf(", %d chunks and %s carried by the kernel", s.Chunks, byteSize(s.Bytes))
	}
	return text
}

func byteSize(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 10<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
}

func printBackends(w io.Writer, bs []telemetry.BackendStatus) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "backend\tadmitted\tqueue\trunning\tin flight\tuncached tok\tindex\thit rate\tTTFT p50\tgap p50\tpicks\t")
	for _, b := range bs {
		admitted := yesNo(b.Admitted)
		if b.Why != "" {
			admitted += ": " + b.Why
		}
		queue := "-"
		if b.Measured {
			queue = strconv.Itoa(b.Queue)
		}
		fmt.Fprintf(t, "%s/%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t\n", b.Site, b.Name, admitted, queue, b.Running, b.Inflight,
			b.UncachedTokens, b.IndexEntries, share(b.MatchedTokens, b.PromptTokens), median(b.TTFT), median(b.ChunkGap), total(b.Picks))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, b := range bs {
		switch {
		case b.PollError != "":
			fmt.Fprintf(w, "%s/%s cannot be polled: %s\n", b.Site, b.Name, b.PollError)
		case !b.Measured && b.LastPollError != nil: // its health was asked for instead
			fmt.Fprintf(w, "%s/%s tells no queue: %s\n", b.Site, b.Name, b.LastPollError.Error)
		}
	}
	return nil
}

// choices sums the backends' picks by outcome.
func choices(bs []telemetry.BackendStatus) map[string]uint64 {
	sum := map[string]uint64{}
	for _, b := range bs {
		for outcome, n := range b.Picks {
			sum[outcome] += n
		}
	}
	return sum
}

func total(m map[string]uint64) (n uint64) {
	for _, k := range m {
		n += k
	}
	return n
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func share(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

func median(q *telemetry.Quantiles) string {
	if q == nil || q.Count == 0 {
		return "-"
	}
	return time.Duration(q.P50 * float64(time.Second)).Round(10 * time.Microsecond).String()
}

// tally prints what was counted, by name.
func tally(m map[string]uint64) string {
	var parts []string
	for k, n := range m {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", k, n))
		}
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}
