package index

// Index maps keys to the backends that hold them.
type Index struct{}
