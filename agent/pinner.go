package agent

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/pin"
	"github.com/tautline/tautline/userspace/proxy"
)

// pinner is package pin behind the interface of package proxy. What it knows is
// replaced as a whole when keys or backends change.
type pinner struct {
	fleet    *decide.Fleet
	now      func() decide.Instant
	state    atomic.Pointer[pinState]
	verdicts [verdictCount]atomic.Uint64
}

// verdictCount is the number of verdicts of package pin.
const verdictCount = int(pin.Unread) + 1

// pinState is what tags are checked against and made of.
type pinState struct {
	site   string
	tagger *pin.Tagger
	roster *pin.Roster
	stamps map[string]string // by label of this site's backends
	labels map[int]string    // by slot
}

// loadTagger reads the tag keys of a configuration: the first signs, both count.
func loadTagger(cfg *config.Config) (*pin.Tagger, error) {
	var keys [][]byte
	for _, f := range []struct{ name, path string }{
		{"tag_key_path", cfg.PrefixAffinity.TagKeyPath},
		{"tag_key_path_previous", cfg.PrefixAffinity.TagKeyPathPrevious},
	} {
		if f.path == "" {
			continue
		}
		k, err := pin.LoadKey(f.path)
		if err != nil {
			return nil, fmt.Errorf("prefix_affinity.%s: %w", f.name, err)
		}
		keys = append(keys, k)
	}
	return pin.NewTagger(cfg.Site, keys)
}

// distinct refuses backends that ids cannot tell apart.
func distinct(cfg *config.Config) error {
	all := make([]pin.Backend, len(cfg.Backends))
	for i, b := range cfg.Backends {
		all[i] = pin.Backend{ID: i, Site: b.Site, Name: b.Name}
	}
	_, err := pin.NewRoster(cfg.Site, all)
	return err
}

// set takes keys and backends into use.
func (p *pinner) set(site string, t *pin.Tagger, members map[string]member, label func(decide.Spec) string) error {
	s := &pinState{site: site, tagger: t, stamps: map[string]string{}, labels: map[int]string{}}
	var all []pin.Backend
	for _, m := range members {
		all = append(all, pin.Backend{ID: m.slot, Site: m.cfg.Site, Name: m.cfg.Name})
		name := label(decide.Spec{Site: m.cfg.Site, Name: m.cfg.Name})
		s.labels[m.slot] = name
		if m.cfg.Site == site {
			s.stamps[name] = t.Stamp(pin.ClusterMark(m.cfg.Name))
		}
	}
	// Gateways of one site are tried in the order of their names.
	slices.SortFunc(all, func(a, b pin.Backend) int { return strings.Compare(a.Name, b.Name) })
	var err error
	if s.roster, err = pin.NewRoster(site, all); err != nil {
		return err
	}
	p.state.Store(s)
	return nil
}

// Request implements proxy.Pinner.
func (p *pinner) Request(r proxy.PinRequest) proxy.PinAnswer {
	a, verdict := p.resolve(r)
	p.verdicts[verdict].Add(1)
	return a
}

// resolve finds the answer to Request, and counts nothing.
func (p *pinner) resolve(r proxy.PinRequest) (proxy.PinAnswer, pin.Verdict) {
	free := proxy.PinAnswer{Slot: -1}
	path := pin.ParsePath(r.Path)
	var names pin.Names
	if path.Endpoint.NamesBody() && r.Body != nil {
		names = pin.ReadBody(r.Body)
	}
	model := ""
	if r.Prompt != nil {
		model = r.Prompt.Model
	}
	s := p.state.Load()
	d := s.roster.Resolve(s.tagger, path, names, model, p)
	if d.Verdict == pin.Free && r.Unread && path.Endpoint.NamesBody() {
		d.Verdict = pin.Unread
	}
	switch d.Verdict {
	case pin.Free, pin.Unread:
		if path.Endpoint == pin.EndpointConversations && r.Method == http.MethodPost {
			free.Site = s.site // a new conversation stays here while it can
		}
		return free, d.Verdict
	case pin.Local:
		a := proxy.PinAnswer{Slot: d.ID, Backend: s.labels[d.ID]}
		if path.Named() {
			a.Path = path.Strip(s.site)
		}
		if len(names.Spans) > 0 {
			whole := key.Span{Start: 0, End: len(r.Body)}
			a.Edits = []proxy.Edit{{At: whole, With: pin.StripBody(r.Body, s.site, names.Spans...)}}
		}
		return a, d.Verdict
	case pin.Foreign:
		return proxy.PinAnswer{Slot: d.ID, Backend: s.labels[d.ID]}, d.Verdict
	case pin.NotAdmitting:
		return proxy.PinAnswer{Slot: -1, Refuse: proxy.RefusalPinUnavailable}, d.Verdict
	case pin.ChosenTag:
		return proxy.PinAnswer{Slot: -1, Refuse: proxy.RefusalPinRequestID}, d.Verdict
	default:
		return proxy.PinAnswer{Slot: -1, Refuse: proxy.RefusalPinUnknown}, d.Verdict
	}
}

// stamp returns what ids of a backend are marked with. A backend that was removed
// while it worked gets its mark, too: the ids are good again when it comes back.
// local is false for another site's gateway, whose label names the site.
func (s *pinState) stamp(backend string) (stamp string, local bool) {
	if stamp, local = s.stamps[backend]; !local && !strings.Contains(backend, "/") {
		return s.tagger.Stamp(pin.ClusterMark(backend)), true
	}
	return stamp, local
}

// Response implements proxy.Pinner. Another site's gateway has tagged its own.
// An answer that came compressed, though Accept-Encoding was dropped, would hand
// out ids that find no way back: it is refused. Errors hold ids in their text
// only, and pass.
func (p *pinner) Response(backend string, _ proxy.PinRequest, status int, h http.Header) (proxy.Rewriter, proxy.Refusal) {
	stamp, local := p.state.Load().stamp(backend)
	if !local || status == http.StatusNoContent || status == http.StatusNotModified {
		return nil, proxy.RefusalNone
	}
	content := h.Get("Content-Type")
	form := pin.FormOf(status, content, strings.Join(h["Content-Encoding"], ","))
	if form == pin.FormNone {
		if status < 300 && pin.FormOf(status, content, "") != pin.FormNone {
			return nil, proxy.RefusalPinEncoded
		}
		return nil, proxy.RefusalNone
	}
	return pin.NewRewriter(stamp, form), proxy.RefusalNone
}

// counts calls f with each verdict and how often it was.
func (p *pinner) counts(f func(verdict string, n uint64)) {
	for _, v := range pin.Verdicts() {
		f(v.String(), p.verdicts[v].Load())
	}
}

// Readable implements proxy.Pinner.
func (p *pinner) Readable(r proxy.PinRequest) bool {
	return pin.ParsePath(r.Path).Endpoint != pin.EndpointOther
}

// Admits implements pin.View.
func (p *pinner) Admits(slot int) bool { return p.fleet.Admits(slot, p.now()) }

// Serves implements pin.View.
func (p *pinner) Serves(slot int, model string) bool { return p.fleet.Serves(slot, model) }
