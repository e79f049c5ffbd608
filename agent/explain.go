package agent

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/proxy"
)

// Explanation says how a body would be routed, and why. Names are promises.
type Explanation struct {
	API          string      `json:"api"`
	Model        string      `json:"model"`
	Keys         []string    `json:"keys"`
	Blocks       int         `json:"blocks"`
	NoKeys       string      `json:"no_keys,omitempty"` // why there are none
	PromptTokens int64       `json:"prompt_tokens"`
	Policy       string      `json:"policy"`
	TauTokens    int64       `json:"tau_tokens"`
	Outcome      string      `json:"outcome"`
	Reason       string      `json:"reason,omitempty"`
	Backend      string      `json:"backend,omitempty"`
	Held         bool        `json:"held,omitempty"` // it would be held until a backend has KV memory for it
	Uncached     int64       `json:"uncached_tokens"`
	Left         int64       `json:"left_tokens,omitempty"` // of those, what other agents have probably left there
	Candidates   []Candidate `json:"candidates"`
}

// Candidate is one backend as the decision saw it.
type Candidate struct {
	Backend  string   `json:"backend"`
	Chosen   bool     `json:"chosen"`
	Takes    bool     `json:"takes"`
	Why      string   `json:"why,omitempty"` // why it takes nothing
	Run      int      `json:"run"`
	Blocks   int      `json:"run_blocks"`
	Sticky   bool     `json:"sticky"`
	Uncached int64    `json:"uncached_tokens"`
	Left     int64    `json:"left_tokens,omitempty"`    // of those, what other agents have probably left there
	Others   int      `json:"other_requests,omitempty"` // of other agents, at the latest poll
	Tokens   int64    `json:"inflight_uncached_tokens"`
	Requests int      `json:"inflight_requests"`
	Queue    *int     `json:"queue_depth,omitempty"`
	Cost     *float64 `json:"cost,omitempty"` // what was compared; absent when it takes nothing, or its load is not known
}

// Explain implements telemetry.Source. The body counts as posted. It has no side effects.
func (a *Agent) Explain(path string, body []byte) any {
	var p key.Prompt
	api := key.ParsePath(path)
	a.hasher.Read(api, body, &p)
	r := decide.Request{
		Model: p.Model, Keys: p.Keys, Bytes: p.Bytes, Stream: p.Stream, Reason: p.Reason, Pinned: -1,
		MayWait: a.config().Routing.Hold > 0 && proxy.MayHold(p.Reason),
	}
	if r.Bytes == 0 && api != key.APIUnknown {
		r.Bytes = len(body) // as much as can be told
	}
	if pr := (proxy.PinRequest{Method: http.MethodPost, Path: path, API: api, Prompt: &p, Body: body}); a.pins.Readable(pr) {
		to, _ := a.pins.resolve(pr)
		if to.Refuse != proxy.RefusalNone {
			none := decide.Decision{Slot: -1, Outcome: decide.None, Policy: a.fleet.Params().Policy}
			e := explain(api, &p, none, nil, a.fleet.Tau(), a.nameOf)
			e.Reason = to.Refuse.String()
			return e
		}
		r.Pinned, r.Site = to.Slot, to.Site
	}
	d, cs := a.fleet.Explain(r, a.now())
	return explain(api, &p, d, cs, a.fleet.Tau(), a.nameOf)
}

func (a *Agent) nameOf(slot int) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slots[slot].label
}

// explain puts keys, decision and candidates into words.
func explain(api key.API, p *key.Prompt, d decide.Decision, cs []decide.Candidate, tau int64, name func(int) string) Explanation {
	e := Explanation{
		API: api.String(), Model: p.Model, Keys: Hex(p.Keys), Blocks: key.Blocks(len(p.Keys)),
		PromptTokens: d.PromptTokens, Policy: d.Policy.String(), TauTokens: tau,
		Outcome: d.Outcome.String(), Uncached: d.Uncached, Left: d.Left, Candidates: []Candidate{},
	}
	if p.Reason != key.ReasonNone {
		e.NoKeys = p.Reason.String()
	}
	if d.Reason != decide.ReasonNone {
		e.Reason = d.Reason.String()
	}
	if d.Slot >= 0 {
		e.Backend = name(d.Slot)
	}
	e.Held = d.Reason == decide.ReasonNoRoom
	for i := range cs {
		c := &cs[i]
		row := Candidate{
			Backend: name(c.Slot), Chosen: c.Slot == d.Slot, Takes: c.Takes(),
			Run: c.Run, Blocks: c.Blocks, Sticky: c.Sticky, Uncached: c.Uncached, Left: c.Left, Others: c.Others,
			Tokens: c.Tokens, Requests: c.Requests,
		}
		switch {
		case !row.Takes:
			row.Why = c.Refusal.String()
		case !math.IsInf(c.Cost, 0): // JSON has no infinity
			row.Cost = &c.Cost
		}
		if c.Measured {
			row.Queue = &c.Queue
		}
		e.Candidates = append(e.Candidates, row)
	}
	slices.SortFunc(e.Candidates, func(x, y Candidate) int { return strings.Compare(x.Backend, y.Backend) })
	return e
}

// Hex prints keys the way every command does.
func Hex(keys []key.Key) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = fmt.Sprintf("%016x", uint64(k))
	}
	return out
}
