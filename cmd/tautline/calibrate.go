package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/tools/calibrate"
)

func newCalibrate() *cobra.Command {
	var o calibrate.Options
	c := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure the peak prefill rate of a live engine, and tau",
		Long: "Measure the peak prefill rate of a live engine with prompts of random tokens, so\n" +
			"that nothing is cached, and print the configuration that follows. The engine must\n" +
			"serve nothing else meanwhile. Repeat it for each model, accelerator and setting.",
		Example: "  tautline calibrate --url http://127.0.0.1:8000 --batch-tokens 8192 --tolerance 14s\n  tautline calibrate --url http://127.0.0.1:8000 -o json",
		Args:    noArgs,
	}
	f := c.Flags()
	f.StringVar(&o.URL, "url", "", "base URL of the engine")
	f.StringVar(&o.Metrics, "metrics", "", "URL of its metrics (default: the base's /metrics)")
	f.StringVar(&o.Model, "model", "", "model (default: the first served)")
	f.StringVar(&o.APIKey, "api-key", "", "sent as a bearer token")
	f.IntVar(&o.Tokens, "batch-tokens", 8192, "B: tokens of one prompt, the engine's max_num_batched_tokens")
	f.DurationVar(&o.Tolerance, "tolerance", calibrate.DefaultTolerance, "T_max, routing.ttft_tolerance: tolerated delay of the first token")
	f.IntVar(&o.Samples, "samples", 20, "measured requests")
	f.IntVar(&o.Warmup, "warm-up", 5, "requests before them")
	f.BoolVar(&o.Words, "words", false, "random words instead of token ids")
	f.BoolVar(&o.Unseen, "blind", false, "go on when the metrics do not tell whether the engine is busy")
	out := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.URL == "" {
			return usageError("%s needs --url", c.CommandPath())
		}
		if err := o.Validate(); err != nil {
			return usageError("%v", err)
		}
		if *out == "table" && terminal(os.Stderr) {
			o.Progress = c.ErrOrStderr()
		}
		r, err := calibrate.Run(c.Context(), o)
		if errors.Is(err, calibrate.ErrBusy) {
			return unhealthy("%v", err)
		}
		if err != nil {
			return err
		}
		if *out == "json" {
			return printJSON(c.OutOrStdout(), r)
		}
		return r.Text(c.OutOrStdout())
	}
	return c
}
