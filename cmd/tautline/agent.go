package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tautline/tautline/agent"
	"github.com/tautline/tautline/agent/config"
)

func newAgent() *cobra.Command {
	c := &cobra.Command{
		Use:   "agent",
		Short: "Route requests to the backends of a configuration",
		Long: "Route requests to the backends of a configuration until SIGTERM or Ctrl-C, then\n" +
			"finish the answers under way; Ctrl-C again cuts them off. SIGHUP reloads the\n" +
			"file; a bad one keeps the old. Prints the client and admin URLs once it listens;\n" +
			"logs go to standard error.",
		Example: "  tautline agent --config tautline.yaml\n" +
			"  tautline agent --backend http://127.0.0.1:8000 --backend http://127.0.0.1:8001",
		Args: noArgs,
	}
	f := c.Flags()
	file := f.String("config", "", "YAML file; see tautline config defaults")
	backends := f.StringArray("backend", nil, "URL of a model server; give it again for more (replaces the file's)")
	listen := f.String("listen", "", "where clients connect")
	admin := f.String("admin", "", "where operators connect; empty = nowhere")
	policy := f.String("policy", "", "routing policy")
	splice := f.String("splice", "", "off, auto or required")
	level := f.String("log-level", "", "debug, info, warn or error")
	c.RunE = func(c *cobra.Command, _ []string) error {
		over := map[string]any{}
		for name, s := range map[string]struct {
			setting string
			value   *string
		}{
			"listen": {"listen", listen}, "admin": {"admin", admin}, "policy": {"routing.policy", policy},
			"splice": {"splice.mode", splice}, "log-level": {"log.level", level},
		} {
			if c.Flags().Changed(name) { // an empty value is one, too
				over[s.setting] = *s.value
			}
		}
		if len(*backends) > 0 {
			list := make([]map[string]any, len(*backends))
			for i, u := range *backends {
				list[i] = map[string]any{"url": u}
			}
			over["backends"] = list
		}
		return runAgent(c, func() (*config.Config, error) {
			cfg, err := config.Load(*file, over)
			if err != nil {
				err = blame(err, over)
			}
			return cfg, err
		})
	}
	addLifetime(c)
	return c
}

// blame makes the error of a configuration one of usage where the settings that flags
// give are wrong, no matter what the file and the environment say.
func blame(err error, over map[string]any) error {
	if len(over) == 0 {
		return err
	}
	if _, bare := config.Load("", nil); bare != nil {
		return err // the environment is to blame, for now
	}
	if _, flags := config.Load("", over); flags != nil {
		return usageError("%v", flags)
	}
	return err
}

// runAgent runs one agent with what load returns, and again at each SIGHUP.
func runAgent(c *cobra.Command, load func() (*config.Config, error)) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // before the file is read: a change of it is not missed
	defer signal.Stop(hup)
	cfg, err := load()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	log := newLogger(c.ErrOrStderr(), cfg.Log, level)
	a, err := agent.New(c.Context(), cfg, agent.Options{Version: version, Log: log, Level: level})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "client %s\n", clientURL(cfg, a.Addr()))
	if a.AdminAddr() != "" {
		fmt.Fprintf(c.OutOrStdout(), "admin http://%s\n", a.AdminAddr())
	}
	if len(cfg.Backends) == 0 {
		log.Warn("no backends: every request is answered 503")
	}

	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-hup:
				reload(a, load, log)
			}
		}
	}()
	err = a.Run(c.Context())
	close(done)
	<-stopped
	return err
}

func reload(a *agent.Agent, load func() (*config.Config, error), log *slog.Logger) {
	cfg, err := load()
	if err == nil {
		err = a.Reload(cfg)
	}
	if err != nil {
		log.Error("reload: the old configuration stays", "err", err)
		return
	}
	log.Info("reloaded")
}

func clientURL(cfg *config.Config, addr string) string {
	if cfg.TLS.CertFile != "" {
		return "https://" + addr
	}
	return "http://" + addr
}

func newLogger(w io.Writer, l config.Log, level *slog.LevelVar) *slog.Logger {
	level.Set(l.SlogLevel())
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
