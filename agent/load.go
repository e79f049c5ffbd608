package agent

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/poll"
)

// engine returns what a backend is to be polled as.
func (a *Agent) engine(b config.Backend) string {
	if b.Engine == "" && b.Site != a.site {
		return poll.Tautline
	}
	return b.Engine
}

// serveLoad tells another agent how busy this one's engines are: 503 while it would
// refuse requests.
func (a *Agent) serveLoad(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET here", http.StatusMethodNotAllowed)
		return
	}
	if ok, why := a.Ready(); !ok {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(a.load()) // a failed write means that the reader left
}

// load is what serveLoad answers.
func (a *Agent) load() poll.AgentLoad {
	agents := map[int]bool{}
	for _, p := range a.pollStatus() {
		agents[p.Slot] = p.Engine == poll.Tautline
	}
	l := sumLoad(a.site, a.fleet.Snapshot(a.now(), nil), func(slot int) bool { return agents[slot] })
	if l.Measured { // what is held here waits for these engines as what is in their queues
		l.Waiting += a.proxy.Held()
	}
	l.Started = float64(a.start.UnixMilli()) / 1e3
	return l
}

// sumLoad sums over the backends of a site. One that is an agent itself takes requests,
// too, but what it says may hold what this one says: then there is no sum, rather
// than one that grows with each poll.
func sumLoad(site string, all []decide.BackendState, isAgent func(slot int) bool) poll.AgentLoad {
	l := poll.AgentLoad{Site: site, Measured: true}
	var share, held float64 // of KV memory, summed; held in tokens
	kv, sized, served := true, true, true
	for _, b := range all {
		if b.Spec.Site != site {
			continue
		}
		l.Models = append(l.Models, b.Spec.Models...)
		if !b.Admitted {
			continue // if it never said what it serves, it can serve nothing now
		}
		served = served && len(b.Spec.Models) > 0
		own := !isAgent(b.Slot)
		l.Engines++
		l.Waiting += b.Waiting
		l.Running += b.Running
		l.KVTokens += b.CapacityTok
		share += b.KVUse
		held += b.KVUse * float64(b.CapacityTok)
		l.Measured = l.Measured && own && b.Measured
		kv = kv && own && b.HasKV
		sized = sized && own && b.CapacityTok > 0
	}
	if l.Engines == 0 || !l.Measured {
		l.Measured, l.Waiting, l.Running = false, 0, 0
	}
	if !sized {
		l.KVTokens = 0
	}
	switch {
	case l.Engines == 0 || !kv:
	case sized:
		l.KVUse = new(min(1, held/float64(l.KVTokens)))
	default:
		l.KVUse = new(min(1, share/float64(l.Engines)))
	}
	if !served || l.Engines == 0 {
		l.Models = nil
	}
	slices.Sort(l.Models)
	l.Models = slices.Compact(l.Models)
	return l
}
