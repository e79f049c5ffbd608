package modelserver

// store keeps responses and conversations in memory.
type store struct{ max int }

func newStore(max int) *store { return &store{max: max} }

func (t *store) clear() {}
