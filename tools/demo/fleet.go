package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// servers is the number of stand-in model servers.
const servers = 3

// Fleet is three stand-in model servers and an agent, each in a process of its
// own, on loopback.
type Fleet struct {
	URL     string   // of the agent, for clients
	Admin   string   // of the agent, for operators
	Servers []string // of the model servers

	model, agent *child
	dir          string
}

// StartFleet starts the processes from the binary at path. Their logs go to
// log. Stop must follow.
func StartFleet(ctx context.Context, binary string, splice string, log io.Writer) (f *Fleet, err error) {
	f = &Fleet{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Stop())
			f = nil
		}
	}()
	args := []string{"modelserver", "--prefill-rate", "40000", "--token-delay", "15ms", "--cache-blocks", "8192"}
	for range servers {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	if f.model, err = start(binary, "modelserver", log, args...); err != nil {
		return f, err
	}
	for range servers {
		url, err := f.model.line(ctx)
		if err != nil {
			return f, err
		}
		f.Servers = append(f.Servers, url)
	}
	if f.dir, err = os.MkdirTemp("", "tautline-demo-"); err != nil {
		return f, err
	}
	file := filepath.Join(f.dir, "tautline.yaml")
	if err := os.WriteFile(file, []byte(f.config(splice)), 0o600); err != nil {
		return f, err
	}
	if f.agent, err = start(binary, "agent", log, "agent", "--config", file); err != nil {
		return f, err
	}
	for _, to := range []struct {
		word string
		url  *string
	}{{"client", &f.URL}, {"admin", &f.Admin}} {
		text, err := f.agent.line(ctx)
		if err != nil {
			return f, err
		}
		url, ok := strings.CutPrefix(text, to.word+" ")
		if !ok {
			return f, fmt.Errorf("agent printed %q, want its %s URL", text, to.word)
		}
		*to.url = url
	}
	return f, nil
}

// config is the agent's: small limits, so that ten seconds show every outcome.
func (f *Fleet) config(splice string) string {
	var b strings.Builder
	b.WriteString(`listen: "127.0.0.1:0"
admin: "127.0.0.1:0"
poll: {interval: 250ms, window: 2s}
# tau = 40,000 tokens/s x 250 ms: the burst behind the hot prompt exceeds it.
routing: {peak_prefill_tokens_per_second: 40000, ttft_tolerance: 250ms}
prefix_affinity: {exploration: 0.05}
log: {level: warn}
`)
	fmt.Fprintf(&b, "splice: {mode: %s, pin_path: %s}\n", splice, pinPath())
	b.WriteString("backends:\n")
	for i, u := range f.Servers {
		fmt.Fprintf(&b, "  - {name: gpu%d, url: %q}\n", i, u)
	}
	return b.String()
}

func pinPath() string { return "/sys/fs/bpf/tautline-demo-" + strconv.Itoa(os.Getpid()) }

// Stop ends the processes, the agent first, and removes what they used.
func (f *Fleet) Stop() error {
	if f.agent != nil {
		f.agent.stop()
	}
	if f.model != nil {
		f.model.stop()
	}
	var err error
	if f.dir != "" {
		err = os.RemoveAll(f.dir)
	}
	// Pins outlive an agent by design; those of a demo are of no use to anybody. Who
	// may not look has made none.
	if e := os.RemoveAll(pinPath()); !errors.Is(e, fs.ErrPermission) {
		err = errors.Join(err, e)
	}
	return err
}
