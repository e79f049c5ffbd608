package policies

import (
	"math"

	"github.com/tautline/tautline/tools/sim/traffic"
)

// Article is the choice as the article's code makes it, for the toy only: it
// knows the prefix by name, sees the true caches, and breaks ties by index. The
// limit is on the best warm queue itself. tau +Inf is always-sticky. It is here
// to be compared with the agent's own policies, which break ties at random:
// where all queues are empty, the article's code sends every cold prefix to the
// first server.
func Article(name string, tau float64, slots int) Policy {
	return Policy{Name: name, New: func(s Setup) Chooser {
		return &article{books: newBooks(s), tau: tau, slots: slots,
			pending: make([]float64, s.Backends), caches: make([][]uint64, s.Backends)}
	}, Toy: true}
}

// AlwaysTau is the limit of always-sticky.
var AlwaysTau = math.Inf(1)

type article struct {
	books
	tau     float64
	slots   int
	pending []float64  // tokens not served yet
	caches  [][]uint64 // most recent last
}

// Route implements Chooser.
func (a *article) Route(j *traffic.Job, _ Instant) int {
	prefix := j.Segs[0]
	least, warm := 0, -1
	for i := range a.pending {
		if a.pending[i] < a.pending[least] {
			least = i
		}
		if a.holds(i, prefix.ID) && (warm < 0 || a.pending[i] < a.pending[warm]) {
			warm = i
		}
	}
	e := least
	if warm >= 0 && a.pending[warm] <= a.tau {
		e = warm
	}
	if a.holds(e, prefix.ID) {
		j.Believe = prefix.Tokens
	}
	a.use(e, prefix.ID)
	a.pending[e] += float64(j.Prompt - j.Believe)
	return a.take(e)
}

// Done implements Chooser.
func (a *article) Done(j *traffic.Job, now Instant) {
	a.pending[j.Slot] -= float64(j.Prompt - j.Believe)
	a.books.Done(j, now)
}

func (a *article) holds(i int, prefix uint64) bool {
	for _, p := range a.caches[i] {
		if p == prefix {
			return true
		}
	}
	return false
}

func (a *article) use(i int, prefix uint64) {
	c := a.caches[i]
	for k, p := range c {
		if p == prefix {
			c = append(c[:k], c[k+1:]...)
			break
		}
	}
	if len(c) == a.slots {
		c = c[:copy(c, c[1:])]
	}
	a.caches[i] = append(c, prefix)
}
