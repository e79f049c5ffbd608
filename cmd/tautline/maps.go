package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/maps"
)

func newMaps() *cobra.Command {
	c := &cobra.Command{
		Use:   "maps",
		Short: "List the pinned maps of the kernel side, or print one",
		Long: "List the pinned maps of the kernel side, or print one. No agent is needed: the\n" +
			"pins outlive it. Maps: " + strings.Join(maps.Dumpable(), ", "),
		Example: "  tautline maps\n  tautline maps dump backends\n  tautline maps dump counters -o json",
		Args:    noArgs,
	}
	pin := c.PersistentFlags().String("pin-path", "/sys/fs/bpf/tautline", "as splice.pin_path of the agent")
	open := func() (*maps.Set, error) {
		set, err := maps.Open(*pin)
		if errors.Is(err, maps.ErrNotPinned) || errors.Is(err, maps.ErrHalfMade) {
			return nil, unhealthy("%v", err)
		}
		return set, err
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		set, err := open()
		if err != nil {
			return err
		}
		defer set.Close()
		for _, name := range maps.Dumpable() {
			fmt.Fprintf(c.OutOrStdout(), "%s/%s\n", maps.Dir(*pin), name)
		}
		return nil
	}
	dump := &cobra.Command{
		Use:     "dump NAME",
		Short:   "Print a map with addresses, names and sums over the processors",
		Example: "  tautline maps dump backends\n  tautline maps dump latency -o json",
		Args:    exactArgs(1),
	}
	o := addOutput(dump)
	dump.RunE = func(c *cobra.Command, args []string) error {
		set, err := open()
		if err != nil {
			return err
		}
		defer set.Close()
		err = set.Dump(c.OutOrStdout(), args[0], maps.Format(*o))
		if errors.Is(err, maps.ErrUnknownMap) {
			return usageError("%v", err)
		}
		return err
	}
	c.AddCommand(dump)
	return c
}
