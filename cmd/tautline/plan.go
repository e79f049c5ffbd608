package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/tools/plan"
)

func newPlan() *cobra.Command {
	in := plan.Seed()
	c := &cobra.Command{
		Use:   "plan",
		Short: "Work out what a fleet can hold and how far stickiness should go",
		Long: "Work out KV bytes per prefix, prefixes per server, break-even, tau and headroom\n" +
			"for a model and a load. The defaults are those of the article that tautline\n" +
			"implements: Qwen3-32B, 64 GiB of KV, prefixes of 55,000 tokens.",
		Example: "  tautline plan\n  tautline plan --layers 32 --kv-heads 8 --head-dim 128 --kv-gib 40 --prefix 8000 --rate 30 -o json",
		Args:    noArgs,
	}
	f := c.Flags()
	kvGiB := in.KVBudgetBytes / (1 << 30)
	f.IntVar(&in.Model.Layers, "layers", in.Model.Layers, "num_hidden_layers")
	f.IntVar(&in.Model.KVHeads, "kv-heads", in.Model.KVHeads, "num_key_value_heads")
	f.IntVar(&in.Model.HeadDim, "head-dim", in.Model.HeadDim, "head_dim")
	f.Float64Var(&in.Model.DtypeBytes, "dtype-bytes", in.Model.DtypeBytes, "bytes per KV element: 2 for bf16, 1 for fp8")
	f.Float64Var(&kvGiB, "kv-gib", kvGiB, "KV memory of one server, GiB")
	f.IntVar(&in.Servers, "servers", in.Servers, "model servers")
	f.Float64Var(&in.BatchTokens, "batch-tokens", in.BatchTokens, "max_num_batched_tokens")
	f.Float64Var(&in.BatchSeconds, "batch-seconds", in.BatchSeconds, "time of one such batch; see tautline calibrate")
	tolerance := f.Duration("tolerance", time.Duration(in.ToleranceSec*float64(time.Second)), "T_max, routing.ttft_tolerance: tolerated delay of the first token")
	f.IntVar(&in.PrefixTokens, "prefix", in.PrefixTokens, "shared tokens of a request")
	f.IntVar(&in.UniqueTokens, "unique", in.UniqueTokens, "new tokens of a request")
	f.IntVar(&in.Prefixes, "prefixes", in.Prefixes, "distinct prefixes")
	f.Float64Var(&in.Zipf, "zipf", in.Zipf, "exponent of their popularity")
	f.Float64Var(&in.Rate, "rate", in.Rate, "requests per second over the fleet")
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		in.KVBudgetBytes, in.ToleranceSec = kvGiB*(1<<30), tolerance.Seconds()
		r, err := plan.Compute(in)
		if err != nil {
			return usageError("%v", err)
		}
		if *o == "json" {
			return printJSON(c.OutOrStdout(), r)
		}
		return r.Table(c.OutOrStdout())
	}
	return c
}
