package load

// Model returns the number under which the means of a model are kept. Models
// beyond Params.Models share number 0. The number stays valid for the life of
// the books.
func (b *Books) Model(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, ok := b.names[name]; ok {
		return n
	}
	if len(b.models) >= b.params.Models {
		return 0
	}
	n := len(b.models)
	b.models = append(b.models, b.models[0]) // start from what all others taught
	b.names[name] = n
	return n
}

// Learned is what the answers of a model taught so far.
type Learned struct {
	BytesPerToken float64 // canonical prompt bytes per prompt token
	Output        float64 // completion tokens per answer
}

// Learned returns the means of a model.
func (b *Books) Learned(model int) Learned {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &b.models[model]
	return Learned{clamped(m.bytes), m.output.value()}
}

// Learn takes in one answer's usage. promptBytes is the canonical prompt that
// promptTokens belong to; a value of zero or less teaches nothing.
func (b *Books) Learn(model, slot, promptBytes, promptTokens, completionTokens int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range [...]int{0, model} {
		m := &b.models[n]
		if promptBytes > 0 && promptTokens > 0 {
			m.bytes.add(float64(promptBytes), float64(promptTokens))
		}
		if completionTokens > 0 {
			m.output.add(float64(completionTokens), 1)
		}
		if model == 0 {
			break
		}
	}
	if a := b.account(slot); a != nil && promptBytes > 0 && promptTokens > 0 {
		a.bytes.add(float64(promptBytes), float64(promptTokens))
	}
}
