package pin

import (
	"errors"
	"testing"
)

type view struct{ busy, wrongModel map[int]bool }

func (v view) Admits(id int) bool           { return !v.busy[id] }
func (v view) Serves(id int, _ string) bool { return !v.wrongModel[id] }

func TestResolve(t *testing.T) {
	tg := tagger(t, "fra", keyA)
	at := func(site, name, id string) string { return tagger(t, site, keyA).Tag(ClusterMark(name), id) }
	onA, onB, gone := at("fra", "a", "resp_1"), at("fra", "b", "conv_2"), at("fra", "old", "resp_3")
	ams, nowhere := at("ams", "x", "resp_4"), at("lon", "a", "resp_5")
	forged := tagger(t, "fra", keyB).Tag(ClusterMark("a"), "resp_1")
	unkeyed := tagger(t, "fra").Tag(ClusterMark("a"), "resp_1")
	roster, err := NewRoster("fra", []Backend{
		{0, "fra", "a"}, {1, "fra", "b"}, {2, "ams", "gw-1"}, {3, "ams", "gw-2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const create = "/v1/responses"
	for _, c := range []struct {
		name  string
		path  string
		names Names
		model string
		view  view
		want  Decision
	}{
		{"unpinned", "/v1/chat/completions", Names{}, "m", view{}, Decision{Free, -1}},
		{"new response", create, Names{}, "m", view{}, Decision{Free, -1}},
		{"new conversation", "/v1/conversations", Names{}, "", view{}, Decision{Free, -1}},
		{"follow-up", create, Names{PreviousResponseID: onA}, "m", view{}, Decision{Local, 0}},
		{"conversation", create, Names{Conversation: onB}, "m", view{}, Decision{Local, 1}},
		{"retrieve", create + "/" + onA, Names{}, "", view{}, Decision{Local, 0}},
		{"cancel, escaped", create + "/%72" + onA[1:] + "/cancel", Names{}, "", view{}, Decision{Local, 0}},
		{"items", "/v1/conversations/" + onB + "/items", Names{}, "", view{}, Decision{Local, 1}},
		{"the first decides", create, Names{PreviousResponseID: onA, Conversation: onB}, "m", view{}, Decision{Local, 0}},
		{"an untagged first does not", create, Names{PreviousResponseID: "resp_1", Conversation: onB}, "m", view{}, Decision{Local, 1}},
		{"untagged in a body", create, Names{PreviousResponseID: "resp_1"}, "m", view{}, Decision{Free, -1}},
		{"untagged in a path", create + "/resp_1", Names{}, "", view{}, Decision{Untagged, -1}},
		{"untagged item list", "/v1/conversations/conv_1/items", Names{}, "", view{}, Decision{Untagged, -1}},
		{"odd path", "/v1//responses/" + onA, Names{}, "", view{}, Decision{Untagged, -1}},
		{"forged in a path", create + "/" + forged, Names{}, "", view{}, Decision{Forged, -1}},
		{"forged in a body", create, Names{PreviousResponseID: forged}, "m", view{}, Decision{Forged, -1}},
		{"forged beside a good one", create, Names{PreviousResponseID: onA, Conversation: forged}, "m", view{}, Decision{Forged, -1}},
		{"of the time before the key", create + "/" + unkeyed, Names{}, "", view{}, Decision{Forged, -1}},
		{"gone backend", create + "/" + gone, Names{}, "", view{}, Decision{Gone, -1}},
		{"gone site", create, Names{PreviousResponseID: nowhere}, "m", view{}, Decision{Gone, -1}},
		{"other site", create + "/" + ams, Names{}, "", view{}, Decision{Foreign, 2}},
		{"other site, its second gateway", create + "/" + ams, Names{}, "", view{busy: map[int]bool{2: true}}, Decision{Foreign, 3}},
		{"other site, none admits", create, Names{PreviousResponseID: ams}, "m", view{busy: map[int]bool{2: true, 3: true}}, Decision{NotAdmitting, -1}},
		{"not admitting", create, Names{PreviousResponseID: onA}, "m", view{busy: map[int]bool{0: true}}, Decision{NotAdmitting, -1}},
		{"another model", create, Names{PreviousResponseID: onA}, "m", view{wrongModel: map[int]bool{0: true}}, Decision{OtherModel, -1}},
		{"no model asked for", create + "/" + onA, Names{}, "", view{wrongModel: map[int]bool{0: true}}, Decision{Local, 0}},
		{"another model and busy", create, Names{PreviousResponseID: onA}, "m",
			view{wrongModel: map[int]bool{0: true}, busy: map[int]bool{0: true}}, Decision{OtherModel, -1}},
		{"client-chosen id", create, Names{RequestID: "resp_mine"}, "m", view{}, Decision{Free, -1}},
		{"client-chosen tag", create, Names{RequestID: onA}, "m", view{}, Decision{ChosenTag, -1}},
		{"client-chosen forged tag", create, Names{RequestID: unkeyed}, "m", view{}, Decision{ChosenTag, -1}},
	} {
		if got := roster.Resolve(tg, ParsePath(c.path), c.names, c.model, c.view); got != c.want {
			t.Errorf("%s: %v %d, want %v %d", c.name, got.Verdict, got.ID, c.want.Verdict, c.want.ID)
		}
	}
	// Without a key any well-formed tag is accepted, but steers only to what is there.
	open := tagger(t, "fra")
	if got := roster.Resolve(open, ParsePath(create+"/"+forged), Names{}, "", view{}); got != (Decision{Local, 0}) {
		t.Errorf("no key: %v", got)
	}
}

func TestVerdicts(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range Verdicts() {
		if v.String() == "" || seen[v.String()] {
			t.Errorf("label %q", v)
		}
		seen[v.String()] = true
	}
}

func TestNewRosterRefuses(t *testing.T) {
	if _, err := NewRoster("fra", []Backend{{0, "Fra", "a"}}); !errors.Is(err, ErrSite) {
		t.Errorf("site: %v", err)
	}
	if _, err := NewRoster("fra", []Backend{{0, "fra", "a"}, {1, "fra", "a"}}); !errors.Is(err, ErrMark) {
		t.Errorf("same mark: %v", err)
	}
	if _, err := NewRoster("fra", []Backend{{0, "fra", "a"}, {1, "ams", "a"}}); err != nil {
		t.Errorf("same name at two sites: %v", err)
	}
}
