package pin

import (
	"errors"
	"fmt"
)

// Verdict is what becomes of a request, with its reason.
type Verdict uint8

// The verdicts. Those with a status are refusals: nothing goes upstream. The answer
// must not tell an id that is forged from one that is gone.
const (
	Free         Verdict = iota // names no tagged id: route it as any other
	Local                       // goes to Decision.ID, this site's tags stripped
	Foreign                     // goes to Decision.ID, another site's gateway, as it came
	Untagged                    // 404: a path id without a tag
	Forged                      // 404: a mac that is not ours
	Gone                        // 404: a site or backend that is not (or no longer) there
	OtherModel                  // 404: the backend does not serve the model asked for
	NotAdmitting                // 503: there, but takes no requests now
	ChosenTag                   // 400: a client-chosen request_id that looks like a tag
	Unread                      // routed as any other: its body is encoded and was not read; Resolve never says so
	verdicts
)

var verdictNames = [verdicts]string{
	Free:         "free",
	Local:        "local",
	Foreign:      "foreign",
	Untagged:     "untagged",
	Forged:       "forged",
	Gone:         "gone",
	OtherModel:   "other_model",
	NotAdmitting: "not_admitting",
	ChosenTag:    "chosen_tag",
	Unread:       "unread",
}

// Verdicts lists all verdicts, to set up a counter for each.
func Verdicts() []Verdict {
	all := make([]Verdict, verdicts)
	for i := range all {
		all[i] = Verdict(i)
	}
	return all
}

// String is the label value of the verdict in metrics: snake_case.
func (v Verdict) String() string { return verdictNames[v] }

// Backend is a place that tags can name.
type Backend struct {
	ID   int    // the caller's number for it
	Site string // a backend of another site is that site's gateway
	Name string
}

// Roster is the set of backends that a site knows. It is immutable: build a new
// one when the set changes.
type Roster struct {
	local   map[string]int   // by ClusterMark
	gateway map[string][]int // by site, in the order given
}

// ErrMark reports two backends of the local site that a tag cannot tell apart.
var ErrMark = errors.New("pin: two backends have the same mark")

// NewRoster returns the roster of the site. Names of the site's own backends
// must differ in their marks (ErrMark, wrapped); sites must be labels (ErrSite,
// wrapped). Several gateways of one site are alternatives.
func NewRoster(site string, backends []Backend) (*Roster, error) {
	r := &Roster{local: map[string]int{}, gateway: map[string][]int{}}
	name := map[string]string{}
	for _, b := range backends {
		if !ValidSite(b.Site) {
			return nil, fmt.Errorf("%w: %q", ErrSite, b.Site)
		}
		if b.Site != site {
			r.gateway[b.Site] = append(r.gateway[b.Site], b.ID)
			continue
		}
		mark := ClusterMark(b.Name)
		if other, dup := name[mark]; dup {
			return nil, fmt.Errorf("%w: %q and %q", ErrMark, other, b.Name)
		}
		r.local[mark], name[mark] = b.ID, b.Name
	}
	return r, nil
}

// View answers for backends by their Backend.ID.
type View interface {
	Admits(id int) bool
	Serves(id int, model string) bool
}

// Decision is where a request goes.
type Decision struct {
	Verdict Verdict
	ID      int // the Backend.ID for Local and Foreign, else -1
}

// Resolve decides over a request with the path p, the names of its body and the
// model it asks for ("" = none given, as in a retrieval). The path's id decides;
// else previous_response_id; else conversation. Every tagged id must have a
// good mac, but only the deciding one steers: where another names another
// backend, the engine gets it all the same and will not find it. An untagged
// id is refused in a path; in a body it steers nothing.
func (r *Roster) Resolve(t *Tagger, p Path, n Names, model string, v View) Decision {
	none := func(why Verdict) Decision { return Decision{Verdict: why, ID: -1} }
	if _, tagged := Parse(n.RequestID); tagged {
		return none(ChosenTag)
	}
	var by Tag
	found := false
	ids := [...]string{p.ID, n.PreviousResponseID, n.Conversation}
	for i, id := range ids {
		tag, ok := Parse(id)
		switch {
		case i == 0 && p.Named() && !ok:
			return none(Untagged)
		case !ok:
			continue
		case !t.Valid(tag):
			return none(Forged)
		case !found:
			by, found = tag, true
		}
	}
	if !found {
		return none(Free)
	}
	if by.Site == t.site {
		id, ok := r.local[by.Cluster]
		if !ok {
			return none(Gone)
		}
		return choose(Local, []int{id}, model, v)
	}
	return choose(Foreign, r.gateway[by.Site], model, v)
}

// choose takes the first of the backends that can take the request.
func choose(to Verdict, ids []int, model string, v View) Decision {
	d := Decision{Verdict: Gone, ID: -1}
	for _, id := range ids {
		switch {
		case model != "" && !v.Serves(id, model):
			if d.Verdict == Gone {
				d.Verdict = OtherModel
			}
		case !v.Admits(id):
			d.Verdict = NotAdmitting
		default:
			return Decision{Verdict: to, ID: id}
		}
	}
	return d
}
