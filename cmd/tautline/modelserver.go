package main

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/tools/modelserver"
)

func newModelserver() *cobra.Command {
	cfg := modelserver.Default()
	var listen []string
	c := &cobra.Command{
		Use:   "modelserver",
		Short: "Run a stand-in engine that behaves like vLLM where routing can feel it",
		Long: "Run a stand-in engine: the APIs, metrics and timing of vLLM (or SGLang), with a\n" +
			"prefix cache of limited size and a prefill rate that all requests share, and no\n" +
			"model. Prints one URL a line once it listens.",
		Example: "  tautline modelserver --listen 127.0.0.1:8000\n" +
			"  tautline modelserver --listen 127.0.0.1:8000 --listen 127.0.0.1:8001 --engine sglang --prefill-rate 8000",
		Args: noArgs,
	}
	f := c.Flags()
	f.StringSliceVar(&listen, "listen", []string{"127.0.0.1:8000"}, "address; give it again for one engine more")
	f.StringVar(&cfg.Engine, "engine", cfg.Engine, "vllm or sglang")
	f.StringSliceVar(&cfg.Models, "model", cfg.Models, "served names")
	f.Float64Var(&cfg.PrefillRate, "prefill-rate", cfg.PrefillRate, "prompt tokens per second, shared by all requests")
	f.IntVar(&cfg.MaxBatchedTokens, "max-batched-tokens", cfg.MaxBatchedTokens, "tokens of one engine step")
	f.IntVar(&cfg.MaxSeqs, "max-seqs", cfg.MaxSeqs, "requests in the running batch")
	f.IntVar(&cfg.MaxQueued, "max-queued", cfg.MaxQueued, "requests that may wait, those beyond are refused with 503 (0: any number)")
	f.DurationVar(&cfg.TokenDelay, "token-delay", cfg.TokenDelay, "time between two tokens of an answer")
	f.IntVar(&cfg.CacheBlocks, "cache-blocks", cfg.CacheBlocks, "KV blocks of 16 tokens")
	f.IntVar(&cfg.AnswerTokens, "answer-tokens", cfg.AnswerTokens, "mean length of an answer")
	f.BoolVar(&cfg.Instant, "instant", false, "answer at once, without engine or cache")
	f.BoolVar(&cfg.DeterministicIDs, "deterministic-ids", false, "ids follow from the request")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := cfg.Validate(); err != nil {
			return usageError("%v", err)
		}
		for _, addr := range listen {
			if _, port, err := net.SplitHostPort(addr); err != nil {
				return usageError("--listen: %v", err)
			} else if _, err := net.LookupPort("tcp", port); err != nil {
				return usageError("--listen %s: no such port", addr)
			}
		}
		for _, addr := range listen {
			ln, err := net.Listen("tcp", addr)
			if err != nil {
				return err
			}
			s, err := modelserver.New(cfg)
			if err != nil {
				return err
			}
			s.Serve(ln)
			defer s.Close()
			fmt.Fprintln(c.OutOrStdout(), s.URL())
		}
		<-c.Context().Done()
		return nil
	}
	addLifetime(c)
	return c
}
