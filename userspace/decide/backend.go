package decide

import (
	"slices"

	"github.com/tautline/tautline/userspace/load"
)

// Admits says whether the backend at slot would take a request now. By the time
// one is routed that may have changed; Route decides.
func (f *Fleet) Admits(slot int, now Instant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live(slot) && f.load.View(slot, now).Refusal == load.Admitted
}

// Unlearned says whether a model may be served only where the models are not known yet:
// there are backends whose models are, and none of them names it.
func (f *Fleet) Unlearned(model string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return model != "" && len(f.models) > 0 && f.models[model] == nil
}

// Serves says whether the backend at slot serves the model: it names it, or its
// models are not known yet.
func (f *Fleet) Serves(slot int, model string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.live(slot) {
		return false
	}
	models := f.backends[slot].spec.Models
	return len(models) == 0 || slices.Contains(models, model)
}
