package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/tools/bench"
	"github.com/tautline/tautline/tools/bench/peers"
	"github.com/tautline/tautline/tools/bench/report"
	"github.com/tautline/tautline/tools/bench/stream"
)

func newBench() *cobra.Command {
	opt := bench.Default()
	var chart string
	var quiet bool
	var assertSpliced float64
	pattern := "batch"
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure latency and CPU per chunk against other proxies",
		Long: "Measures, side by side in one run on loopback, what a router costs: the way of each\n" +
			"chunk from the server's write to the client's read, the router's CPU per chunk and\n" +
			"per request, time to first token, memory of open streams. The paths take turns in\n" +
			"short rounds. Every response is checked to its last byte.\n\n" +
			"Paths: direct, spliced and unspliced (tautline agent), nginx and haproxy (a worker or\n" +
			"thread per CPU), nginx1 and haproxy1 (only one), net-http (a reverse proxy of Go's\n" +
			"library alone), and every --peer. Phases: streams, requests, ttft, idle. The spliced\n" +
			"path needs root, or the capabilities of the agent.\n\n" +
			"It fails when a response was not exact, and when --assert-spliced is not reached.",
		Example: "  tautline bench\n" +
			"  tautline bench --paths direct,spliced,nginx --phases streams --streams 1000 --rounds 5 --chart bench.svg\n" +
			"  tautline bench --peer 'caddy=caddy reverse-proxy --from http://{listen} --to {upstream}' -o json\n" +
			"  tautline bench --paths direct,spliced --phases streams --duration 1s --rounds 1 --assert-spliced 0.9\n" +
			"  tautline bench --phases streams --hogs $(nproc)\n" +
			"  tautline bench --api responses --paths spliced,unspliced --phases streams",
		Args: noArgs,
	}
	o := addOutput(c)
	f := c.Flags()
	f.StringSliceVar(&opt.Paths, "paths", nil, "what to compare, in this order (default: all that is installed)")
	f.StringArrayVar(&opt.Peers, "peer", nil, "another router: name=COMMAND with {listen} and {upstream}; also {listen_port}, {upstream_port}, {dir}")
	f.StringSliceVar(&opt.Phases, "phases", opt.Phases, "what to measure")
	f.StringVar(&opt.API, "api", opt.API, "what the streams are: chat, or responses, whose events all but the deltas pass through the agent")
	f.IntVar(&opt.Streams, "streams", opt.Streams, "paced streams at once")
	f.Float64Var(&opt.Rate, "rate", opt.Rate, "chunks per second of one stream")
	f.IntVar(&opt.Tokens, "tokens", opt.Tokens, "tokens of one response")
	f.IntVar(&opt.ChunkBytes, "chunk-bytes", opt.ChunkBytes, "bytes of one chunk")
	f.StringVar(&pattern, "pattern", pattern, "batch: all streams send on one tick, as an engine's batch does; spread: each has its own")
	f.DurationVar(&opt.Duration, "duration", opt.Duration, "how long a round of streams is measured")
	f.IntVar(&opt.Rounds, "rounds", opt.Rounds, "how often the paths take turns")
	f.IntVar(&opt.Concurrency, "concurrency", opt.Concurrency, "requests at once under request load")
	f.IntVar(&opt.BodyBytes, "body-bytes", opt.BodyBytes, "bytes of a request's body")
	f.DurationVar(&opt.LoadDuration, "load-duration", opt.LoadDuration, "how long a round of requests, and of first tokens, is measured")
	f.IntVar(&opt.TTFTStreams, "ttft-streams", opt.TTFTStreams, "streams at once while time to first token is measured")
	f.IntVar(&opt.IdleStreams, "idle-streams", opt.IdleStreams, "open, silent streams while memory is measured")
	f.IntVar(&opt.ServerThreads, "server-threads", opt.ServerThreads, "CPUs of the stream server; a Python server has 1")
	f.IntVar(&opt.Hogs, "hogs", 0, "processes that use a CPU each meanwhile")
	f.StringVar(&chart, "chart", "", "also draw a chart into this .svg or .png `FILE`")
	f.Float64Var(&assertSpliced, "assert-spliced", 0, "fail when a smaller share of the spliced path's bytes is spliced, as 0.9")
	f.BoolVarP(&quiet, "quiet", "q", false, "no progress on stderr")

	c.RunE = func(c *cobra.Command, _ []string) error {
		switch pattern {
		case "batch", "spread":
			opt.Spread = pattern == "spread"
		default:
			return usageError("--pattern must be batch or spread, got %q", pattern)
		}
		if chart != "" && !strings.HasSuffix(chart, ".svg") && !strings.HasSuffix(chart, ".png") {
			return usageError("--chart writes SVG or PNG: the file's name must end in .svg or .png, got %q", chart)
		}
		if assertSpliced < 0 || assertSpliced > 1 {
			return usageError("--assert-spliced must be from 0 to 1, got %g", assertSpliced)
		}
		if err := opt.Validate(); err != nil {
			return usageError("%v", err)
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		opt.Self = []string{self}
		opt.Server = []string{self, "bench", "serve"}
		opt.Hog = []string{self, "bench", "hog"}
		if !quiet {
			opt.Progress = func(line string) { fmt.Fprintln(c.ErrOrStderr(), "bench:", line) }
		}
		r, err := bench.Run(c.Context(), opt)
		if err != nil {
			return err
		}
		if *o == "json" {
			err = printJSON(c.OutOrStdout(), r)
		} else {
			err = r.Table(c.OutOrStdout())
		}
		if err != nil {
			return err
		}
		if chart != "" {
			if err := writeChart(chart, r); err != nil {
				return err
			}
		}
		return judge(r, assertSpliced)
	}
	c.AddCommand(&cobra.Command{
		Use:     "serve",
		Short:   "The stream server, run by bench itself",
		Example: "  tautline bench serve",
		Hidden:  true,
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return stream.Main(c.InOrStdin(), c.OutOrStdout()) },
	})
	c.AddCommand(&cobra.Command{
		Use:     "hog",
		Short:   "A process that uses one CPU, run by bench itself",
		Example: "  tautline bench hog",
		Hidden:  true,
		Args:    noArgs,
		Run:     func(c *cobra.Command, _ []string) { bench.Hog(c.InOrStdin()) },
	})
	c.AddCommand(&cobra.Command{
		Use:     "net-http LISTEN UPSTREAM",
		Short:   "The router of the path net-http, run by bench itself",
		Example: "  tautline bench net-http 127.0.0.1:8080 127.0.0.1:8000",
		Hidden:  true,
		Args:    exactArgs(2),
		RunE:    func(c *cobra.Command, a []string) error { return peers.ServeNetHTTP(c.Context(), a[0], a[1]) },
	})
	return c
}

func writeChart(file string, r *report.Report) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	write := r.Chart().SVG
	if strings.HasSuffix(file, ".png") {
		write = r.Chart().PNG
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// judge turns what a report says into the command's result.
func judge(r *report.Report, assertSpliced float64) error {
	if !r.Exact() {
		return fmt.Errorf("bench: responses were not exact, see the report")
	}
	if assertSpliced == 0 {
		return nil
	}
	share, err := r.SplicedShare()
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if share < assertSpliced {
		return fmt.Errorf("bench: %.4f of the bytes were spliced, less than %g", share, assertSpliced)
	}
	return nil
}
