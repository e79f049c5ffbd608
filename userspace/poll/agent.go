package poll

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/tautline/tautline/userspace/load"
)

// Tautline is the engine of a Target that is no engine but another agent: a
// gateway. Asked for its metrics it would pass the question on to one of its
// engines, each time to another. It is asked at LoadPath instead. A Target that is said
// to be one is never asked for metrics.
const Tautline = "tautline"

// LoadPath is where an agent tells others its AgentLoad, on its client listener.
const LoadPath = "/tautline/load"

// AgentLoad is how busy the engines behind an agent are, together. They are those of
// its own site that take requests: what lies behind its own gateways is left out, or
// sites that list each other would count each other's requests again and again.
type AgentLoad struct {
	Site     string   `json:"site"`
	Started  float64  `json:"started"`          // when the agent began, seconds since 1970; what it knew before is gone
	Engines  int      `json:"engines"`          // how many they are
	Measured bool     `json:"measured"`         // the next two are known, of each of them
	Waiting  int      `json:"waiting"`          // sum
	Running  int      `json:"running"`          // sum
	KVUse    *float64 `json:"kv_use,omitempty"` // share of KV memory in use, 0..1; nil = not known of each
	KVTokens int64    `json:"kv_tokens"`        // capacity, sum; 0 = not known of each
	Models   []string `json:"models,omitempty"` // served by any backend of the site, sorted; empty = not known of each that takes requests
}

// sample checks the page and makes a Sample of it.
func (l *AgentLoad) sample() (load.Sample, error) {
	const most = 1 << 40
	kv := l.KVUse
	switch {
	case l.Site == "": // some other JSON
		return load.Sample{}, errors.New("not an agent's load")
	case min(l.Engines, l.Waiting, l.Running) < 0 || max(l.Engines, l.Waiting, l.Running) > most,
		l.KVTokens < 0 || l.KVTokens > maxCount, kv != nil && (*kv < 0 || *kv > 1), l.Started < 0:
		return load.Sample{}, errors.New("an agent's load with figures that cannot be")
	}
	s := load.Sample{
		CapacityTok: l.KVTokens, Engines: l.Engines,
		StartTime: l.Started, HasStartTime: l.Started > 0,
	}
	if l.Measured && l.Engines > 0 {
		s.Waiting, s.Running, s.HasQueue = l.Waiting, l.Running, true
	}
	if kv != nil {
		s.KVUse, s.HasKV = *kv, true
	}
	return s, nil
}

// agent asks another agent for its load and the models of its site.
func (f *fetcher) agent(ctx context.Context, p *Params, request []byte) (s load.Sample, models []string, no *failure) {
	var page AgentLoad
	var wrong error
	no = f.get(ctx, p, request, func(body io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(body, modelsBytes+1))
		if err != nil {
			return err
		}
		if len(b) > modelsBytes {
			return errTooLarge
		}
		if wrong = json.Unmarshal(b, &page); wrong == nil {
			s, wrong = page.sample()
		}
		return nil
	})
	switch {
	case no != nil:
		return load.Sample{}, nil, no
	case wrong != nil:
		return load.Sample{}, nil, &failure{reason: ReasonGarbage, err: wrong}
	}
	slices.Sort(page.Models)
	return s, slices.DeleteFunc(slices.Compact(page.Models), func(m string) bool { return m == "" }), nil
}
