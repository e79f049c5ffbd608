package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// addLifetime gives a command the hidden flag --until-stdin-closes: a parent
// that holds the other end of standard input takes the command with it, however
// it dies.
func addLifetime(c *cobra.Command) {
	on := c.Flags().Bool("until-stdin-closes", false, "end when standard input does")
	if err := c.Flags().MarkHidden("until-stdin-closes"); err != nil {
		panic(err) // the flag was defined one line above
	}
	inner := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !*on {
			return inner(c, args)
		}
		ctx, cancel := context.WithCancel(c.Context())
		defer cancel()
		go func() {
			_, _ = io.Copy(io.Discard, c.InOrStdin())
			cancel()
		}()
		c.SetContext(ctx)
		return inner(c, args)
	}
}
