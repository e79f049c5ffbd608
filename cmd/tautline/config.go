package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/agent"
	"github.com/tautline/tautline/agent/config"
)

func newConfig() *cobra.Command {
	c := &cobra.Command{
		Use:     "config",
		Short:   "Check a configuration, or print the defaults",
		Example: "  tautline config defaults > tautline.yaml\n  tautline config check tautline.yaml",
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		&cobra.Command{
			Use:   "check FILE",
			Short: "Say whether an agent would start with this file",
			Long: "Say whether an agent would start with this file: settings, key files and\n" +
				"certificates. Ports and the kernel are not tried; see tautline doctor.",
			Example: "  tautline config check tautline.yaml",
			Args:    exactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				cfg, err := config.Load(args[0], nil)
				if err == nil {
					err = agent.Check(cfg)
				}
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(c.OutOrStdout(), "ok")
				return err
			},
		},
		&cobra.Command{
			Use:     "defaults",
			Short:   "Print every setting with its default and its meaning",
			Example: "  tautline config defaults",
			Args:    noArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				_, err := c.OutOrStdout().Write(config.DefaultsYAML())
				return err
			},
		},
	)
	return c
}
