package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  tautline version -o json",
		Args:    noArgs,
	}
	o := addOutput(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *o == "json" {
			return printJSON(c.OutOrStdout(), map[string]string{
				"version": version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
			})
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "tautline %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
	return c
}
