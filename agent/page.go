package agent

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/poll"
)

// page returns what the agent answers itself on the client listener: its load, and the
// list of models where no backend could list them all.
func (a *Agent) page(r *http.Request) http.Handler {
	switch r.URL.Path {
	case poll.LoadPath:
		return http.HandlerFunc(a.serveLoad)
	case "/v1/models":
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return nil
		}
		listed := map[int][]poll.Model{}
		for _, p := range a.pollStatus() {
			listed[p.Slot] = p.Listed
		}
		if list, differ := mergeModels(a.fleet.Snapshot(a.now(), nil), listed); differ {
			return modelList(list)
		}
	}
	return nil
}

// modelList answers with entries of a list of models.
type modelList []json.RawMessage

func (l modelList) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// A failed write means that the reader left.
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": []json.RawMessage(l)})
}

// mergeModels lists the models of the backends that take requests, each as the first
// of them that lists it does. differ is false when all who are known serve the same.
func mergeModels(all []decide.BackendState, listed map[int][]poll.Model) (list []json.RawMessage, differ bool) {
	seen := map[string]bool{}
	sets := map[string]bool{}
	for _, b := range all {
		if !b.Admitted || len(b.Spec.Models) == 0 {
			continue
		}
		names := slices.Sorted(slices.Values(b.Spec.Models))
		sets[strings.Join(slices.Compact(names), "\x00")] = true
		for _, name := range b.Spec.Models {
			if !seen[name] {
				seen[name] = true
				list = append(list, modelEntry(name, listed[b.Slot]))
			}
		}
	}
	return list, len(sets) > 1
}

// modelEntry is what a backend says of a model; of a configured one, or one behind a
// gateway, no more is known than its name.
func modelEntry(name string, listed []poll.Model) json.RawMessage {
	for _, m := range listed {
		if m.ID == name {
			return m.Entry
		}
	}
	b, err := json.Marshal(map[string]any{"id": name, "object": "model", "created": 0, "owned_by": "tautline"})
	if err != nil {
		return nil // a string always marshals
	}
	return b
}
