package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// agentConfig is an agent with one backend. Its pins stand apart from those of
// an agent that may run on the same machine.
const agentConfig = `
listen: "%[1]s"
admin: "%[2]s"
drain_timeout: 2s
backends:
  - {name: server, url: "http://%[3]s", engine: vllm}
splice: {mode: %[4]s, pin_path: %[5]s}
log: {level: warn, format: text}
`

func agentStarter(mode string) func(context.Context, Env) (*Peer, error) {
	return func(ctx context.Context, e Env) (*Peer, error) {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		admin, err := freeAddr()
		if err != nil {
			return nil, err
		}
		pins := fmt.Sprintf("/sys/fs/bpf/tautline-bench-%d", os.Getpid())
		conf, err := writeFile(e, "agent.yaml", fmt.Sprintf(agentConfig, addr, admin, e.Upstream, mode, pins))
		if err != nil {
			return nil, err
		}
		clean := func() error { return os.RemoveAll(pins) }
		argv := append(append([]string{}, e.Self...), "agent", "--config", conf)
		proc, err := run(ctx, e, argv, func(ctx context.Context) error {
			if err := answers(ctx, "http://"+admin+"/readyz"); err != nil {
				return err
			}
			return forwards(addr)(ctx)
		})
		if err != nil {
			return nil, errors.Join(err, clean())
		}
		return &Peer{Addr: addr, proc: proc, admin: admin, clean: clean}, nil
	}
}

// Spliced is what an agent says about its splice since it started.
type Spliced struct {
	Bytes     float64            // tautline_spliced_bytes_total, over all backends
	Responses map[string]float64 // tautline_splice_responses_total by "result" or "result/reason"
}

// Sub is what was spliced between an earlier reading o and s.
func (s Spliced) Sub(o Spliced) Spliced {
	d := Spliced{Bytes: s.Bytes - o.Bytes, Responses: map[string]float64{}}
	for k, v := range s.Responses {
		if v -= o.Responses[k]; v != 0 {
			d.Responses[k] = v
		}
	}
	return d
}

// Spliced reads an agent's metrics; false for a peer that is no agent, and for
// an agent that does not say.
func (p *Peer) Spliced(ctx context.Context) (Spliced, bool, error) {
	if p.admin == "" {
		return Spliced{}, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+"/metrics", nil)
	if err != nil {
		return Spliced{}, false, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Spliced{}, false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return Spliced{}, false, err
	}
	s, ok := parseSpliced(string(text))
	return s, ok, nil
}

func parseSpliced(text string) (s Spliced, ok bool) {
	s.Responses = map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		end := strings.LastIndexByte(line, ' ')
		if end < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			continue
		}
		series := line[:end]
		name, labels, _ := strings.Cut(series, "{")
		switch name {
		case "tautline_spliced_bytes_total":
			s.Bytes += v
			ok = true
		case "tautline_splice_responses_total":
			key := label(labels, "result")
			if r := label(labels, "reason"); r != "" {
				key += "/" + r
			}
			s.Responses[key] += v
		}
	}
	return s, ok
}

// label finds a label's value in name="value",...} ; the agent's need no escapes.
func label(labels, name string) string {
	_, rest, ok := strings.Cut(labels, name+`="`)
	if !ok {
		return ""
	}
	v, _, _ := strings.Cut(rest, `"`)
	return v
}
