package traffic

import "math/rand/v2"

// Conversations are an open loop of conversations: they begin at a rate, whether
// others have ended or not. Within one, each question waits for the answer
// before it.
type Conversations struct {
	turns Sessions
	rate  *Poisson // when conversations begin
	begun uint64
	idle  []int // users whose conversation ended
}

// NewConversations returns an open loop that sends nothing new from until on.
// What a conversation says depends on seed and its number only.
func NewConversations(rate Rate, until Instant, seed uint64, script Script) *Conversations {
	return &Conversations{
		turns: Sessions{script: script, seed: seed, until: until},
		rate:  NewPoisson(rate, until, seed, func(*Job, int, *rand.Rand) {}),
	}
}

// Next implements Source.
func (c *Conversations) Next() Instant {
	for {
		start, next := c.rate.Next(), c.turns.Next()
		if start == Never || start > next {
			return next
		}
		c.rate.Pop(nil)
		u := len(c.turns.users)
		if n := len(c.idle); n > 0 {
			u, c.idle = c.idle[n-1], c.idle[:n-1]
		} else {
			c.turns.users = append(c.turns.users, user{})
		}
		c.turns.users[u].number = 0
		c.turns.begin(u, c.begun)
		c.begun++
		c.turns.schedule(start+c.turns.users[u].turns[0].Think, u)
	}
}

// Pop implements Source.
func (c *Conversations) Pop(j *Job) { c.turns.Pop(j) }

// Done implements Source.
func (c *Conversations) Done(j *Job, now Instant) {
	w := &c.turns.users[j.Session]
	if w.turn+1 == len(w.turns) {
		c.idle = append(c.idle, j.Session)
		return
	}
	c.turns.Done(j, now)
}
