package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/agent"
	"github.com/tautline/tautline/agent/config"
)

func newDoctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can splice, and say what to do",
		Long: "Check whether this machine can splice: kernel, capabilities, cgroup2, pins, and a\n" +
			"self-test on loopback with real sockets. Exits 3 when it cannot. A running agent\n" +
			"is not disturbed.",
		Example: "  tautline doctor\n  tautline doctor --config tautline.yaml -o json",
		Args:    noArgs,
	}
	file := c.Flags().String("config", "", "YAML file, for splice.cgroup and splice.pin_path")
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := config.Load(*file, nil)
		if err != nil {
			return err
		}
		checks := agent.Doctor(c.Context(), cfg)
		bad := 0
		for _, k := range checks {
			if !k.OK {
				bad++
			}
		}
		if *o == "json" {
			err = printJSON(c.OutOrStdout(), checks)
		} else {
			for _, k := range checks {
				mark := "ok  "
				if !k.OK {
					mark = "FAIL"
				}
				fmt.Fprintf(c.OutOrStdout(), "%s  %-16s %s\n", mark, k.Name, k.Detail)
				if k.Advice != "" {
					fmt.Fprintf(c.OutOrStdout(), "      %-16s → %s\n", "", k.Advice)
				}
			}
		}
		if err == nil && bad > 0 {
			err = unhealthy("%d of %d checks failed: the agent runs, streams pass through it", bad, len(checks))
		}
		return err
	}
	return c
}
