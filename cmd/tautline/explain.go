package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/agent"
	"github.com/tautline/tautline/userspace/key"
)

// readBody reads a request body from a file, or from standard input for "-".
func readBody(c *cobra.Command, name string) ([]byte, error) {
	if name == "" {
		return nil, usageError("%s needs -f FILE (- for standard input)", c.CommandPath())
	}
	if name == "-" {
		return io.ReadAll(c.InOrStdin())
	}
	return os.ReadFile(name)
}

// keysOutput is what `keys` prints. Names are promises.
type keysOutput struct {
	Keys   []string `json:"keys"`
	Blocks int      `json:"blocks"`
	Bytes  int      `json:"bytes"` // of the canonical prompt
	Model  string   `json:"model"`
	Reason string   `json:"reason"`
}

// offlineKeys keys a body with a hash key of zeroes, so that the result is the
// same everywhere.
func offlineKeys(path string, body []byte) (keysOutput, error) {
	api := key.ParsePath(path)
	if api == key.APIUnknown {
		return keysOutput{}, usageError("--path %s has no prompt: want /v1/chat/completions, /v1/completions, /v1/messages or /v1/responses", path)
	}
	var p key.Prompt
	key.NewHasher([32]byte{}, key.Options{}).Read(api, body, &p)
	return keysOutput{
		Keys: agent.Hex(p.Keys), Blocks: key.Blocks(len(p.Keys)), Bytes: p.Bytes, Model: p.Model, Reason: p.Reason.String(),
	}, nil
}

func newKeys() *cobra.Command {
	c := &cobra.Command{
		Use:     "keys",
		Short:   "Print the keys of a request body, without an agent",
		Long:    "Print the keys of a request body, without an agent. The hash key is all zeroes, so\nthe same body gives the same keys everywhere; an agent's own keys differ.",
		Example: "  tautline keys -f body.json --path /v1/chat/completions\n  cat body.json | tautline keys -f - -o table",
		Args:    noArgs,
	}
	file := c.Flags().StringP("file", "f", "", "request body, - for standard input")
	path := c.Flags().String("path", "/v1/chat/completions", "where it would be sent")
	o := addOutput(c)
	*o = "json"
	c.Flags().Lookup("output").DefValue = o.String()
	c.RunE = func(c *cobra.Command, _ []string) error {
		body, err := readBody(c, *file)
		if err != nil {
			return err
		}
		k, err := offlineKeys(*path, body)
		if err != nil {
			return err
		}
		return printKeys(c.OutOrStdout(), *o, k)
	}
	return c
}

func printKeys(w io.Writer, o output, k keysOutput) error {
	if o == "json" {
		return printJSON(w, k)
	}
	fmt.Fprintf(w, "model   %s\nprompt  %d bytes canonical, %d blocks under %d keys\n", k.Model, k.Bytes, k.Blocks, len(k.Keys))
	if len(k.Keys) == 0 {
		fmt.Fprintf(w, "no keys: %s\n", k.Reason)
	}
	for i, h := range k.Keys {
		fmt.Fprintf(w, "%4d  block %5d  %s\n", i, key.Blocks(i+1), h)
	}
	return nil
}

func newExplain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain",
		Short: "Say where a running agent would send a body, and why",
		Long: "Say where a running agent would send a body, and why: its keys, what each backend\n" +
			"holds of them, the loads, the decision. Nothing is sent and nothing remembered.\n" +
			"With --offline only the keys are printed and no agent is asked.",
		Example: "  tautline explain -f body.json\n  tautline explain -f body.json --path /v1/messages -o json\n  tautline explain -f body.json --offline",
		Args:    noArgs,
	}
	file := c.Flags().StringP("file", "f", "", "request body, - for standard input")
	path := c.Flags().String("path", "/v1/chat/completions", "where it would be sent")
	offline := c.Flags().Bool("offline", false, "print the keys only, without an agent")
	o, admin := addOutput(c), addAdmin(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		body, err := readBody(c, *file)
		if err != nil {
			return err
		}
		if *offline {
			k, err := offlineKeys(*path, body)
			if err != nil {
				return err
			}
			return printKeys(c.OutOrStdout(), *o, k)
		}
		var e agent.Explanation
		if err := admin.do(c.Context(), http.MethodPost, "/v1/explain?path="+url.QueryEscape(*path), body, &e); err != nil {
			return err
		}
		if *o == "json" {
			return printJSON(c.OutOrStdout(), e)
		}
		return printExplanation(c.OutOrStdout(), e)
	}
	return c
}

func printExplanation(w io.Writer, e agent.Explanation) error {
	fmt.Fprintf(w, "%s, model %q: about %d prompt tokens, %d keys over %d blocks", e.API, e.Model, e.PromptTokens, len(e.Keys), e.Blocks)
	if e.NoKeys != "" {
		fmt.Fprintf(w, " (%s)", e.NoKeys)
	}
	fmt.Fprintf(w, "\npolicy %s, tau %d tokens\n", e.Policy, e.TauTokens)
	where := "nowhere"
	if e.Held {
		where = "nowhere yet and is held"
	}
	if e.Backend != "" {
		where = fmt.Sprintf("to %s, which must prefill about %d tokens", e.Backend, e.Uncached)
		if e.Left > 0 {
			where += fmt.Sprintf(" (less %d that other agents have probably left there)", e.Left)
		}
	}
	why := e.Outcome
	if e.Reason != "" {
		why += ", " + e.Reason
	}
	fmt.Fprintf(w, "goes %s: %s\n\n", where, why)

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tbackend\trun\tsticky\tuncached here\tin flight\tuncached in flight\tqueue\tcompared")
	for _, b := range e.Candidates {
		mark, queue, cost := " ", "-", "-"
		if b.Chosen {
			mark = "→"
		}
		if b.Queue != nil {
			queue = fmt.Sprint(*b.Queue)
		}
		name := b.Backend
		if !b.Takes {
			name += " (" + b.Why + ")"
		}
		if b.Cost != nil {
			cost = fmt.Sprintf("%.6g", *b.Cost)
		}
		fmt.Fprintf(t, "%s\t%s\t%d keys, %d blocks\t%s\t%d\t%d\t%d\t%s\t%s\n",
			mark, name, b.Run, b.Blocks, yesNo(b.Sticky), b.Uncached, b.Requests, b.Tokens, queue, cost)
	}
	return t.Flush()
}
