package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/agent/telemetry"
	"github.com/tautline/tautline/tools/bench/load"
	"github.com/tautline/tautline/tools/demo"
	"github.com/tautline/tautline/tools/quantile"
	splicing "github.com/tautline/tautline/userspace/splice"
)

func newDemo() *cobra.Command {
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run three stand-in model servers and the agent on loopback",
		Long: "Run three stand-in model servers and the agent on loopback. With --duration a\n" +
			"mixed load is sent through it and a table printed; without, it keeps running.",
		Example: "  tautline demo --duration 10s\n  tautline demo",
		Args:    noArgs,
	}
	duration := c.Flags().Duration("duration", 0, "send the load for so long, print the table and exit")
	seed := c.Flags().Uint64("seed", 1, "of the load")
	splice := c.Flags().String("splice", "auto", "off, auto or required")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if c.Flags().Changed("duration") && *duration <= 0 {
			return usageError("--duration must be positive, got %s", *duration)
		}
		if _, err := splicing.ParseMode(*splice); err != nil {
			return usageError("--splice: %v", err)
		}
		binary, err := os.Executable()
		if err != nil {
			return err
		}
		f, err := demo.StartFleet(c.Context(), binary, *splice, c.ErrOrStderr())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Stop()) }()
		if *duration == 0 {
			return keepRunning(c.Context(), c.OutOrStdout(), os.Args[0], f)
		}
		fmt.Fprintf(c.OutOrStdout(), "three model servers behind %s, a mixed load for %s ...\n\n", f.URL, *duration)
		return demoTable(c, f, f.Run(c.Context(), *duration, *seed))
	}
	return c
}

// keepRunning prints how to use the fleet, with the command by the name that it was
// started by, and waits.
func keepRunning(ctx context.Context, w io.Writer, self string, f *demo.Fleet) error {
	fmt.Fprintf(w, `agent   %s
status  %s status --admin %s
metrics %s/metrics

curl -N %s/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{"model":"stand-in","stream":true,"messages":[{"role":"user","content":"Hello"}]}'

Ctrl-C ends it.
`, f.URL, self, f.Admin, f.Admin, f.URL)
	<-ctx.Done()
	return nil
}

// demoTable prints what the clients felt and what the agent knows. It fails
// when a request did.
func demoTable(c *cobra.Command, f *demo.Fleet, r demo.Report) error {
	if err := context.Cause(c.Context()); err != nil {
		return err
	}
	var s telemetry.Status
	if err := (adminClient{&f.Admin}).do(c.Context(), http.MethodGet, "/v1/status", nil, &s); err != nil {
		return err
	}
	out := c.OutOrStdout()
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	ms := func(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }
	fmt.Fprintln(t, "what\trequests\thit rate\tTTFT p50\tp90\tp99")
	kinds := make([]string, 0, len(r.ByKind))
	for k := range r.ByKind {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	row := func(name string, k *load.Summary) {
		ttft := slices.Sorted(slices.Values(k.TTFT))
		fmt.Fprintf(t, "%s\t%d\t%.0f %%\t%s\t%s\t%s\n", name, k.Requests, 100*k.HitRate(), ms(quantile.Of(ttft, .5)), ms(quantile.Of(ttft, .9)), ms(quantile.Of(ttft, .99)))
	}
	for _, k := range kinds {
		row(k, r.ByKind[k])
	}
	row("all", &r.Total)
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintf(out, "\ndecisions   %s\n", tally(choices(s.Backends)))
	fmt.Fprintf(out, "splice      %s\n", spliceLine(s.Splice))
	if r.Wire > 0 && s.Splice.State == "on" {
		fmt.Fprintf(out, "            %.0f %% of all bytes that the clients received\n", 100*float64(s.Splice.Bytes)/float64(r.Wire))
	}
	fmt.Fprintf(out, "agent CPU   %s per request, %s per chunk delivered (routing included)\n\n",
		per(r.CPU, int64(r.Total.Requests)), per(r.CPU, r.Total.Chunks))
	if err := printBackends(out, s.Backends); err != nil {
		return err
	}
	if r.Total.Failed > 0 {
		return fmt.Errorf("%d of %d requests failed, the first with: %w", r.Total.Failed, r.Total.Requests, r.Total.FirstError)
	}
	return nil
}

func per(d time.Duration, n int64) string {
	if n == 0 {
		return "-"
	}
	return (d / time.Duration(n)).Round(100 * time.Nanosecond).String()
}
