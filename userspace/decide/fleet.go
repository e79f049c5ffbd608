package decide

import (
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// Instant is a monotonic time, counted from any fixed moment of the caller's choice.
type Instant = time.Duration

// Spec names a backend that requests can be sent to.
type Spec struct {
	Site   string
	Name   string
	Models []string // empty = learned by polling
}

// Request is what a choice depends on, beside the state of the fleet.
type Request struct {
	Model  string
	Keys   []key.Key
	Bytes  int        // canonical prompt bytes; estimates the tokens
	Stream bool       // false: the first token cannot be seen
	Reason key.Reason // why there are no keys
	Tried  []int      // slots that failed before a byte was sent; never chosen again
	Pinned int        // slot a stored id names, or -1
}

// Fleet is the set of backends with all that is known about them: index, load
// and admission. It makes a choice, its reservation and its pending marks one
// atomic step, so that two requests back to back see each other. The agent and
// the simulator use the same Fleet.
type Fleet struct {
	index *index.Index
	load  *load.Books
}
