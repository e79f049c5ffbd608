// Package index remembers which backend holds which keys.
//
// It is pure: the time is passed in, as a monotonic instant counted from any
// fixed moment. All methods may be called concurrently; readers do not block
// each other.
package index

import (
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// Params are the settings of an Index. See Default and Validate.
type Params struct {
	Capacity   int           // keys per backend while its KV capacity is unknown
	TTL        time.Duration // how long a confirmed key counts
	PendingTTL time.Duration // how long a pending mark lives without an answer
}

// Default returns the seed's settings.
func Default() Params {
	return Params{Capacity: 16384, TTL: 600 * time.Second, PendingTTL: 30 * time.Second}
}

// Mark is one request's pending claim on a backend: which keys it wrote and
// which of them were new. It belongs to the caller and is used up by exactly
// one of Confirm, Withdraw or Drop.
type Mark struct {
	slot       int
	generation uint32
	keys       []key.Key
}
