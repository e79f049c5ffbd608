package decide

import (
	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
)

// Request is what a choice depends on, beside the state of the fleet. The fleet
// copies what it keeps.
type Request struct {
	Model  string    // "" = not known: every backend will do
	Keys   []key.Key // at most key.MaxKeys count
	Bytes  int       // canonical prompt bytes (without keys: the body's will do); estimates the tokens
	Tokens int64     // prompt tokens where the caller knows them; 0 = estimated from Bytes
	// Cover is the geometry of keys that were not made by package key: Cover[i]
	// blocks of TokensPerBlock tokens are covered by i+1 keys. nil = key's own.
	Cover  []int32
	Stream bool       // false: the first token cannot be seen
	Reason key.Reason // why there are no keys
	Site   string     // prefer this site while one of its backends admits; "" = none
	Tried  []int      // slots that could not be reached or refused it; not chosen again
	Moves  Ticket     // attempt that this one replaces: it ends in the same step
	// MayWait asks priced-spread for ReasonNoRoom instead of a backend where none has KV
	// memory for the prompt. The caller keeps the request and asks again, see Fleet.Room.
	MayWait bool
	Pinned  int // slot a stored id names, or -1
	// Told says that another agent has sent it to Pinned. It is booked here like an own one,
	// unless the backend is refused here. Agents tell each other nothing yet but in the
	// policy lab.
	Told bool
}

// tokens returns the length of the prompt in tokens.
func (r *Request) tokens(bytesPerToken float64) int64 {
	if r.Tokens > 0 {
		return r.Tokens
	}
	return int64(float64(max(r.Bytes, 0))/bytesPerToken + 0.5)
}

// matched returns how many of a prompt's tokens lie in the blocks that a run
// covers. whole is how many blocks the prompt has.
func matched(tokens int64, blocks int, whole float64) int64 {
	if blocks == 0 || whole <= 0 {
		return 0
	}
	return min(int64(float64(tokens)*float64(blocks)/whole), tokens)
}

// whole returns how many blocks the prompt has if its keys cover all of them.
func (r *Request) whole(all int) float64 {
	if b := float64(r.Bytes) / key.BlockBytes; r.Cover == nil && b > float64(all) {
		return b // the tail after the last key is never matched
	}
	return float64(all)
}

// covered returns how many blocks the first run keys cover.
func (r *Request) covered(run int) int { return index.Covered(run, r.Cover) }
