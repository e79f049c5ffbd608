package splice

import (
	"strings"
	"testing"
	"time"
)

// TestWaiting: each response is told once, of its own token and not after its end, and
// nothing is kept of one that has ended.
func TestWaiting(t *testing.T) {
	s := New(nil, Default())
	heard := map[string]time.Duration{}
	times := 0
	begin := func(name string) *Response {
		return &Response{s: s, number: s.waiting.enter(word{first: func(ago time.Duration) { heard[name], times = ago, times+1 }})}
	}
	told, ended, idle := begin("told"), begin("ended"), begin("idle")
	ended.end()
	s.waiting.first(ended.number, 1)
	s.waiting.first(told.number, 2)
	s.waiting.first(told.number, 3)
	s.waiting.first(idle.number+1, 4) // nobody's
	if times != 1 || heard["told"] != 2 {
		t.Errorf("told %d times: %v", times, heard)
	}
	told.end()
	idle.end()
	if n := len(s.waiting.tell); n != 0 {
		t.Errorf("%d responses are kept that have ended", n)
	}
}

// TestWaitingForUsage: a response is told of each message, behind its first token too,
// and not after its end.
func TestWaitingForUsage(t *testing.T) {
	s := New(nil, Default())
	var heard []string
	note := func(what string) { heard = append(heard, what) }
	r := &Response{s: s, number: s.waiting.enter(word{
		first: func(time.Duration) { note("first") },
		usage: func(end []byte) { note(string(end)) },
	})}
	deaf := &Response{s: s, number: s.waiting.enter(word{first: func(time.Duration) {}})}
	s.waiting.usage(r.number, []byte("1"))
	s.waiting.first(r.number, 0)
	s.waiting.first(r.number, 0)
	s.waiting.usage(r.number, []byte("2"))
	s.waiting.usage(deaf.number, []byte("3"))
	s.waiting.usage(deaf.number+1, []byte("4")) // nobody's
	r.end()
	s.waiting.usage(r.number, []byte("5"))
	if got := strings.Join(heard, " "); got != "1 first 2" {
		t.Errorf("told %s", got)
	}
}
