package proxy

import (
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/pin"
)

// Pins is the Pinner over package pin: ids of stored responses and conversations
// carry the backend that holds them. The IDs of its Roster are slots.
type Pins struct {
	tagger *pin.Tagger
	view   pin.View
	roster atomic.Pointer[pin.Roster]
}

// NewPins returns the Pinner of a site. The view tells which slots admit.
func NewPins(t *pin.Tagger, r *pin.Roster, v pin.View) *Pins {
	p := &Pins{tagger: t, view: v}
	p.roster.Store(r)
	return p
}

// SetRoster changes the backends that ids can name. Call it after a backend was
// added to the Fleet and before one is removed from it, for slots are reused.
func (p *Pins) SetRoster(r *pin.Roster) { p.roster.Store(r) }

// FleetView is the pin.View of a Fleet.
type FleetView struct {
	Fleet *decide.Fleet
	Clock func() decide.Instant
}

// Admits tells whether a slot takes requests now.
func (v FleetView) Admits(slot int) bool { return v.Fleet.Admits(slot, v.Clock()) }

// Serves tells whether a slot serves the model.
func (v FleetView) Serves(slot int, model string) bool { return v.Fleet.Serves(slot, model) }

// Request resolves the ids that the path and the body name. A body that is
// encoded or streamed names none.
func (p *Pins) Request(r PinRequest) PinAnswer {
	path := pin.ParsePath(r.Path)
	if path.Endpoint == pin.EndpointOther {
		return PinAnswer{Slot: -1}
	}
	var names pin.Names
	if path.Endpoint.NamesBody() && r.Body != nil && r.Prompt.Reason != key.ReasonEncoding {
		names = pin.NamesAt(r.Body, pin.Span(r.Prompt.PreviousResponseID), pin.Span(r.Prompt.Conversation), pin.Span(r.Prompt.RequestID))
	}
	d := p.roster.Load().Resolve(p.tagger, path, names, r.Prompt.Model, p.view)
	switch d.Verdict {
	case pin.Local:
		a := PinAnswer{Slot: d.ID, Edits: p.strip(r.Body, names)}
		if stripped := path.Strip(p.tagger.Site()); stripped != r.Path {
			a.Path = stripped
		}
		return a
	case pin.Foreign:
		return PinAnswer{Slot: d.ID}
	case pin.NotAdmitting:
		return PinAnswer{Slot: -1, Refuse: RefusalPinUnavailable}
	case pin.ChosenTag:
		return PinAnswer{Slot: -1, Refuse: RefusalPinRequestID}
	case pin.Untagged, pin.Forged, pin.Gone, pin.OtherModel:
		return PinAnswer{Slot: -1, Refuse: RefusalPinUnknown}
	}
	a := PinAnswer{Slot: -1}
	if path.Endpoint == pin.EndpointConversations && r.Method == http.MethodPost {
		a.Site = p.tagger.Site() // a new conversation stays here while anybody here admits
	}
	return a
}

// strip returns the edits that cut this site's tags out of a body.
func (p *Pins) strip(body []byte, names pin.Names) []Edit {
	var edits []Edit
	for _, s := range names.Spans {
		token := body[s.Start:s.End]
		plain := pin.StripBody(token, p.tagger.Site(), pin.Span{Start: 0, End: len(token)})
		if len(plain) != len(token) {
			edits = append(edits, Edit{At: key.Span(s), With: plain})
		}
	}
	slices.SortFunc(edits, func(a, b Edit) int { return a.At.Start - b.At.Start })
	return edits
}

// Readable is true wherever ids occur in answers.
func (p *Pins) Readable(r PinRequest) bool {
	return pin.ParsePath(r.Path).Endpoint != pin.EndpointOther
}

// Response tags the ids in the answer of a backend of this site. Another site's
// gateway has tagged its own.
func (p *Pins) Response(by Backend, r PinRequest, status int, h http.Header) Rewriter {
	if by.Site != "" && by.Site != p.tagger.Site() || pin.ParsePath(r.Path).Endpoint == pin.EndpointOther {
		return nil
	}
	form := pin.FormOf(status, h.Get("Content-Type"), h.Get("Content-Encoding"))
	if form == pin.FormNone {
		return nil
	}
	return pin.NewRewriter(p.tagger.Stamp(pin.ClusterMark(by.Name)), form)
}
