package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/tools/sim"
	"github.com/tautline/tautline/tools/sim/policies"
	"github.com/tautline/tautline/tools/sim/traffic"
)

func newSim() *cobra.Command {
	var presets strings.Builder
	for _, p := range sim.Presets() {
		fmt.Fprintf(&presets, "\n  %-14s %s", p.Name, p.About)
	}
	var names strings.Builder
	line := 0
	for _, p := range policies.All() {
		if line+len(p.Name) > 76 {
			line = 0
		}
		if line == 0 {
			names.WriteString("\n ")
		}
		names.WriteString(" " + p.Name)
		line += 1 + len(p.Name)
	}
	o := sim.Options{}
	c := &cobra.Command{
		Use:   "sim",
		Short: "Compare routing policies on a simulated fleet",
		Long: "Compare routing policies on a simulated fleet, with the agent's own decision code.\n" +
			"The preset seed prints the table of the article on llm-d 1.0's cache-affinity\n" +
			"routing and checks what can be worked out by hand; exit 1 when a check fails.\n\nPresets:" + presets.String() +
			"\n\nPolicies: the agent's own, parts of them, and those of other routers:" + names.String(),
		Example: "  tautline sim --preset seed\n" +
			"  tautline sim --preset seed --sweep tau=20000:600000:20000 --out charts\n" +
			"  tautline sim --preset b2b --policy priced --policy sticky-until-saturated --seeds 8\n" +
			"  tautline sim --study --seeds 8\n" +
			"  tautline sim --convert-mooncake mooncake.jsonl > trace.jsonl; tautline sim --trace trace.jsonl",
		Args: noArgs,
	}
	f := c.Flags()
	f.StringVar(&o.Preset, "preset", "", "scenario (default: seed; b2b's fleet under a trace)")
	f.StringVar(&o.Trace, "trace", "", "JSON lines instead of the preset's traffic")
	f.StringSliceVar(&o.Policies, "policy", nil, "policies to compare (default: those of the preset)")
	f.Float64SliceVar(&o.Loads, "load", nil, "load points: requests/s, users or sessions, as the preset has it")
	f.StringVar(&o.Sweep, "sweep", "", "tau=FROM:TO:STEP or rate=FROM:TO:STEP")
	f.IntVar(&o.Seeds, "seeds", 3, "runs of each point")
	f.IntVar(&o.Workers, "workers", 0, "runs at a time (0: all processors)")
	f.Float64Var(&o.Memory, "memory", 0, "router's memory over the engines' cache (0: the preset's)")
	f.DurationVar(&o.TTL, "ttl", 0, "of what the router remembers (0: the agent's default)")
	f.DurationVar(&o.Polls, "polls", 0, "interval of the polls (0: the preset's)")
	f.IntVar(&o.Agents, "agents", 0, "agents, each with a memory of its own (0: the preset's)")
	f.DurationVar(&o.Telling, "telling", 0, "several agents tell each other decisions this late (0: never)")
	f.IntVar(&o.BatchTokens, "batch-tokens", 0, "max_num_batched_tokens of the engines (0: 8192)")
	f.IntVar(&o.DecodeSlots, "decode-slots", 0, "max_num_seqs of the engines (0: 256)")
	f.IntVar(&o.KVTokens, "kv-tokens", 0, "KV cache of an engine (0: 262144)")
	outages := f.StringSlice("outage", nil, "BACKEND:FROM or BACKEND:FROM:TO, as in 3:120s:180s: it dies and comes back empty")
	f.BoolVar(&o.Unexplored, "unexplored", false, "the agent's policies do not explore")
	f.BoolVar(&o.Unstreamed, "unstreamed", false, "answers are not streamed")
	f.BoolVar(&o.Exact, "exact", false, "real 256-byte blocks (slower)")
	f.DurationVar(&o.Duration, "duration", 0*time.Second, "of the arrivals, to cut them short (0: the preset's)")
	f.StringVar(&o.Journal, "journal", "", "keep finished runs in this file and go on from there when started again")
	f.StringVar(&o.Out, "out", "", "folder for report.html, charts and results.json")
	f.Lookup("load").DefValue = "" // or help would say [], which is none of its load points
	f.Lookup("load").Usage += " (default: those of the preset)"
	out := addOutput(c)
	quiet := f.Bool("quiet", false, "no progress bar")
	study := f.Bool("study", false, "compare policies over all workloads: how often each is within 5 % of the best")
	overload := f.Bool("overload", false, "with --study: the points above the knee too")
	mooncake := f.String("convert-mooncake", "", "print this Mooncake trace as JSON lines for --trace, and stop")
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.Format = string(*out)
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(sim.GCPercent)
		}
		if *mooncake != "" {
			return convertMooncake(c, *mooncake)
		}
		if o.Workers < 0 {
			return usageError("workers %d: must not be negative", o.Workers)
		}
		for _, s := range *outages {
			out, err := sim.ParseOutage(s)
			if err != nil {
				return usageError("%v", err)
			}
			o.Outages = append(o.Outages, out)
		}
		if terminal(os.Stderr) && !*quiet {
			o.Progress = c.ErrOrStderr()
		}
		if *study {
			return runStudy(c, o, *overload)
		}
		if *overload {
			return usageError("--overload is for --study")
		}
		r, err := sim.Lab(c.Context(), o, c.OutOrStdout())
		if err != nil {
			return ofSim(err)
		}
		if r.Failed() {
			return fmt.Errorf("a check failed")
		}
		return nil
	}
	return c
}

// runStudy compares policies over the presets; --preset narrows it to one.
func runStudy(c *cobra.Command, o sim.Options, overload bool) error {
	for _, flag := range []string{"load", "sweep", "trace", "out"} {
		if c.Flags().Changed(flag) {
			return usageError("--study runs the load points of its presets and prints a table: it takes no --%s", flag)
		}
	}
	s := sim.StudyOptions{
		Policies: o.Policies, Seeds: o.Seeds, Workers: o.Workers, Overload: overload, Journal: o.Journal,
		Conditions: o.Conditions, Format: o.Format, Progress: o.Progress,
	}
	if c.Flags().Changed("preset") {
		s.Presets = []string{o.Preset}
	}
	_, err := sim.RunStudy(c.Context(), s, c.OutOrStdout())
	return ofSim(err)
}

// ofSim makes an error of the options one of usage.
func ofSim(err error) error {
	if o := (sim.OptionError{}); errors.As(err, &o) {
		return usageError("%v", err)
	}
	return err
}

func convertMooncake(c *cobra.Command, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = traffic.ConvertMooncake(f, c.OutOrStdout())
	return err
}

// terminal tells whether somebody watches, so that a line may be drawn over itself.
func terminal(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
