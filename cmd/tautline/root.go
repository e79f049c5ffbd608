package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// newRoot builds the command tree. It holds no state, so tests build their own.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tautline",
		Short: "Routes LLM requests to the model server that already holds their prefix",
		Long: "tautline sends each OpenAI- or Anthropic-style request to the model server that\n" +
			"already holds its prefix in the KV cache, for as long as that server is not\n" +
			"saturated, and lets the kernel carry the token stream back to the client.",
		Example:       "  tautline demo\n  tautline agent --config tautline.yaml\n  tautline status",
		SilenceErrors: true,
		SilenceUsage:  true,
		// An unknown command is a usage error, not a run of the root.
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError("unknown command %q; see tautline --help", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError("%v; see %s --help", err, c.CommandPath())
	})
	root.AddCommand(
		newVersion(),
		newAgent(),
		newDemo(),
		newStatus(),
		newBackends(),
		newModelserver(),
		newExplain(),
		newKeys(),
		newSim(),
		newPlan(),
		newDoctor(),
		newMaps(),
		newCalibrate(),
		newConfig(),
		newBench(),
	)
	return root
}

// addCobras adds the commands that cobra would add itself later, and makes them keep
// our rule for exit codes.
func addCobras(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return usageError("unknown command %q; see tautline --help", strings.Join(args, " "))
				}
				return nil
			}
		case "completion":
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
	argsAreUsage(root)
}

// argsAreUsage makes what a command says about its positional arguments a usage
// error, whoever has written the check.
func argsAreUsage(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if coded := (coded{}); err == nil || errors.As(err, &coded) {
				return err
			}
			return usageError("%v; see %s --help", err, c.CommandPath())
		}
	}
	for _, sub := range c.Commands() {
		argsAreUsage(sub)
	}
}

// noArgs refuses positional arguments as a usage error.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError("%s takes no arguments, got %s", c.CommandPath(), strings.Join(args, " "))
	}
	return nil
}

// exactArgs wants exactly n positional arguments.
func exactArgs(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError("%s takes %d argument(s), got %d; see %s --help", c.CommandPath(), n, len(args), c.CommandPath())
		}
		return nil
	}
}

// output is the value of -o.
type output string

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "table|json" }
func (o *output) Set(s string) error {
	if s != "table" && s != "json" {
		return fmt.Errorf("must be table or json, got %q", s)
	}
	*o = output(s)
	return nil
}

// addOutput gives a command its -o flag.
func addOutput(c *cobra.Command) *output {
	o := output("table")
	c.Flags().VarP(&o, "output", "o", "how to print")
	return &o
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
