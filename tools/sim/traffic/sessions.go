package traffic

import (
	"math"
	"math/rand/v2"
	"time"
)

// Turn is one question of a conversation.
type Turn struct {
	Input  int           // new tokens of the question
	Output int           // tokens of the answer
	Think  time.Duration // from the end of the last answer to this question
}

// Script writes one conversation: the segments it begins with (a system
// prompt, shared or not) and its turns, at least one. id is unique to the
// conversation. opening and turns come empty and keep their storage.
type Script func(id uint64, rnd *rand.Rand, opening []Segment, turns []Turn) ([]Segment, []Turn)

// Sessions is a closed loop: users that each hold one conversation at a time,
// wait for every answer, and begin a new conversation when one has ended.
type Sessions struct {
	script Script
	seed   uint64
	until  Instant
	users  []user
	due    []arrival // heap by time
	order  int
}

type user struct {
	number  int // conversations begun
	id      uint64
	history []Segment
	turns   []Turn
	turn    int
}

type arrival struct {
	at    Instant
	order int // ties in the order of scheduling
	user  int
}

// NewSessions returns a closed loop of users that begin within the first ramp
// and send nothing new from until on. What a user says depends on seed and
// user only, not on when the answers come.
func NewSessions(users int, ramp time.Duration, until Instant, seed uint64, script Script) *Sessions {
	s := &Sessions{script: script, seed: seed, until: until, users: make([]user, users)}
	for u := range s.users {
		s.begin(u, uint64(u))
		at := Instant(float64(ramp) * (float64(u) + 0.5) / float64(users))
		s.schedule(at+s.users[u].turns[0].Think, u)
	}
	return s
}

// begin gives the user at u its next conversation. who and the number of the
// conversation say which.
func (s *Sessions) begin(u int, who uint64) {
	w := &s.users[u]
	w.id = Mix(Mix(s.seed, who), uint64(w.number))
	rnd := rand.New(rand.NewPCG(s.seed^who<<32, uint64(w.number)))
	w.history, w.turns = s.script(w.id, rnd, w.history[:0], w.turns[:0])
	w.number++
	w.turn = 0
}

// Next implements Source.
func (s *Sessions) Next() Instant {
	if len(s.due) == 0 || s.due[0].at >= s.until {
		return Never
	}
	return s.due[0].at
}

// Pop implements Source.
func (s *Sessions) Pop(j *Job) {
	u := s.popDue()
	w := &s.users[u]
	t := w.turns[w.turn]
	for _, seg := range w.history {
		j.Add(seg)
	}
	question := Mix(w.id, uint64(w.turn)<<1)
	j.Add(Segment{question, t.Input})
	j.Output = max(t.Output, 1)
	j.Answer = Mix(question, 1)
	j.Session = u
	w.history = append(w.history, Segment{question, t.Input}, Segment{j.Answer, j.Output})
}

// Done implements Source.
func (s *Sessions) Done(j *Job, now Instant) {
	w := &s.users[j.Session]
	if w.turn++; w.turn >= len(w.turns) {
		s.begin(j.Session, uint64(j.Session))
	}
	s.schedule(now+w.turns[w.turn].Think, j.Session)
}

func (s *Sessions) schedule(at Instant, u int) {
	s.order++
	a := arrival{at, s.order, u}
	s.due = append(s.due, a)
	i := len(s.due) - 1
	for i > 0 && a.before(s.due[(i-1)/2]) {
		s.due[i] = s.due[(i-1)/2]
		i = (i - 1) / 2
	}
	s.due[i] = a
}

func (s *Sessions) popDue() int {
	top := s.due[0].user
	last := s.due[len(s.due)-1]
	s.due = s.due[:len(s.due)-1]
	n := len(s.due)
	if n == 0 {
		return top
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && s.due[c+1].before(s.due[c]) {
			c++
		}
		if !s.due[c].before(last) {
			break
		}
		s.due[i] = s.due[c]
		i = c
	}
	s.due[i] = last
	return top
}

func (a arrival) before(b arrival) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}

// Normal draws from a normal distribution, drawn again until it is within
// [lo, hi].
func Normal(rnd *rand.Rand, mean, deviation, lo, hi float64) int {
	for {
		if x := mean + deviation*rnd.NormFloat64(); x >= lo && x <= hi {
			return int(math.Round(x))
		}
	}
}

// Around draws an exponential around mean, cut at hi, as a whole number of at
// least 1.
func Around(rnd *rand.Rand, mean, hi float64) int {
	return int(math.Max(1, math.Min(hi, math.Round(rnd.ExpFloat64()*mean))))
}
