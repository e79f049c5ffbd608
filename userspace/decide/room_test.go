package decide

import (
	"math"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/load"
)

// A backend has 10,000 KV tokens, of which 500 are spared. A prompt of 50 keys has
// 3,200 tokens.
func poll(f *Fleet, slot int, use float64, now Instant) {
	f.Observe(slot, load.Sample{HasQueue: true, HasKV: true, KVUse: use, CapacityTok: 10000}, now)
}

func patient(r Request) Request {
	r.MayWait = true
	return r
}

func TestNoRoom(t *testing.T) {
	const s = time.Second
	f := newFleet(t, 2, spreading)
	poll(f, 0, 0.7, 0)
	poll(f, 1, 0.6, 0)
	if got, _ := f.Room("m", 0); got != 3500 {
		t.Fatalf("room for %d tokens, want 3500", got)
	}
	first, d := f.Route(patient(prompt(1, 50)), 0)
	if d.Slot != 1 || d.Needs != 3200 {
		t.Fatalf("%+v: there is room at 1", d)
	}
	if got, _ := f.Room("m", 0); got != 2500 {
		t.Fatalf("room for %d tokens with a prompt on its way", got)
	}
	for range 3 { // asked again and again it changes nothing
		k, no := f.Route(patient(prompt(1000, 50)), 0)
		if no.Slot >= 0 || no.Outcome != None || no.Reason != ReasonNoRoom || no.Needs != 3200 || k != (Ticket{}) {
			t.Fatalf("%+v, want no room", no)
		}
	}
	if c := f.Counts(); c.InFlight != 1 || c.Refusals[ReasonNoRoom] != 0 || c.Decisions[PricedSpread][None] != 0 {
		t.Errorf("%+v: a request that waits was counted", c)
	}
	if d, _ := f.Explain(patient(prompt(1000, 50)), 0); d.Reason != ReasonNoRoom {
		t.Errorf("explained as %+v", d)
	}
	// Who begins with what is in flight needs only the rest.
	more := patient(prompt(1, 54))
	if d, _ := f.Explain(more, 0); d.Slot < 0 || d.Needs != 4*64 {
		t.Errorf("%+v: it needs memory for 4 blocks", d)
	}
	// Who may not wait goes somewhere.
	k, sent := f.Route(prompt(1000, 50), 0)
	if sent.Slot < 0 {
		t.Errorf("%+v: it may not wait", sent)
	}
	k.Done(s)
	first.FirstToken(s)
	if d, _ := f.Explain(patient(prompt(2000, 50)), s); d.Reason != ReasonNoRoom {
		t.Errorf("%+v: what had its first token holds its memory", d)
	}
	first.Done(s)
	if d, _ := f.Explain(patient(prompt(2000, 50)), s); d.Slot < 0 {
		t.Errorf("%+v: its memory is free again, whatever the poll said", d)
	}
}

// TestRoomWhileAPollIsUnderWay: what was let go and got its first token while a poll was
// on its way is not in what the poll says, or may not be. Its memory is not given to the
// next one.
func TestRoomWhileAPollIsUnderWay(t *testing.T) {
	const s = time.Second / 2
	f := newFleet(t, 2, spreading)
	poll(f, 0, 1, 0)
	poll(f, 1, 0.6, 0)
	// The next poll of 1 is sent after s, and the engine looks. What it says comes after 3 s.
	first, d := f.Route(patient(prompt(1, 50)), s+1)
	if d.Slot != 1 {
		t.Fatalf("%+v: there is room at 1", d)
	}
	first.FirstToken(2 * s)
	poll(f, 1, 0.6, s)
	if room, _ := f.Room("m", 3*s); room != 300 {
		t.Errorf("room for %d tokens, want the 300 that the first leaves", room)
	}
	if _, d := f.Route(patient(prompt(1000, 50)), 3*s); d.Reason != ReasonNoRoom {
		t.Errorf("%+v: its memory was given away twice", d)
	}
	poll(f, 1, 0.92, 3*s) // which shows it, once
	if room, _ := f.Room("m", 3*s); room != 300 {
		t.Errorf("room for %d tokens, want the 300 that are left", room)
	}
	// It ends while a poll is on its way, which may show that.
	first.Done(5 * s)
	poll(f, 1, 0.6, 4*s)
	if room, _ := f.Room("m", 6*s); room != 3500 {
		t.Errorf("room for %d tokens, want 3500: what it gave back counts once", room)
	}
}

// Where answers are longer than prompts it is they that fill the memory: to keep a prompt
// gains nothing.
func TestShorterThanItsAnswer(t *testing.T) {
	for _, c := range []struct {
		output int
		want   Reason
	}{{3200, ReasonNoRoom}, {3300, ReasonNone}} {
		f := newFleet(t, 2, spreading)
		for range 1000 {
			k, _ := f.Route(prompt(1, 50), 0)
			k.Usage(3200, 0, c.output)
			k.Done(0)
		}
		poll(f, 0, 0.9, 0)
		poll(f, 1, 0.9, 0)
		if d, _ := f.Explain(patient(prompt(1000, 50)), 0); d.Needs != 3200 || (d.Reason == ReasonNoRoom) != (c.want == ReasonNoRoom) {
			t.Errorf("answers of %d tokens: %+v, want %v", c.output, d, c.want)
		}
	}
}

func TestRoomThatNobodyKnows(t *testing.T) {
	full := func(f *Fleet) {
		for slot := range 2 {
			poll(f, slot, 1, 0)
		}
	}
	for _, c := range []struct {
		name   string
		change func(f *Fleet)
		policy func(p *Params)
		want   bool // it waits
	}{
		{"all full", full, spreading, true},
		{"one does not say its memory", func(f *Fleet) { full(f); f.Observe(1, load.Sample{HasQueue: true, HasKV: false}, 1) }, spreading, false},
		{"one was never polled", func(f *Fleet) { poll(f, 0, 1, 0) }, spreading, false},
		{"polls that are too old", func(f *Fleet) {
			for slot := range 2 {
				poll(f, slot, 1, -time.Minute)
			}
		}, spreading, false},
		{"another policy", full, nil, false},
		{"no other to choose", func(f *Fleet) { full(f); f.Drain(1, true) }, spreading, false},
		{"nobody takes it", func(f *Fleet) { full(f); f.Drain(0, true); f.Drain(1, true) }, spreading, false},
	} {
		f := newFleet(t, 2, c.policy)
		c.change(f)
		if d, _ := f.Explain(patient(prompt(1, 50)), 0); (d.Reason == ReasonNoRoom) != c.want {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
	f := newFleet(t, 2, spreading)
	full(f)
	for blocks, waits := range map[int]bool{148: true, 149: false} { // 9,472 and 9,536 tokens; an empty backend has room for 9,500
		if d, _ := f.Explain(patient(prompt(1, blocks)), 0); (d.Reason == ReasonNoRoom) != waits {
			t.Errorf("%d tokens: %+v", d.Needs, d)
		}
	}
	f = newFleet(t, 1, spreading)
	if got, _ := f.Room("m", 0); got != math.MaxInt64 {
		t.Errorf("room %d of an engine that says nothing", got)
	}
	f.Drain(0, true)
	if got, _ := f.Room("m", 0); got != math.MaxInt64 {
		t.Errorf("room %d where nobody takes requests: to wait is in vain", got)
	}
	if got, _ := f.Room("none such", 0); got != math.MaxInt64 {
		t.Errorf("room %d for a model that nobody serves: to wait is in vain", got)
	}
	f = newFleet(t, 2, spreading)
	full(f)
	if got, _ := f.Room("m", 0); got != -500 {
		t.Errorf("room %d where all are full", got)
	}
	f.Drain(1, true)
	if got, _ := f.Room("m", 0); got != math.MaxInt64 {
		t.Errorf("room %d of the only one that takes requests: nobody waits for it", got)
	}
}
