package load

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A poll is answered some time after it was sent, and the engine may have looked at any
// moment between. What own requests have taken meanwhile counts on top of what it says,
// what they have given back does not come off it: memory that seems taken costs a wait of
// one poll at most, memory that seems free is given to two.
func TestWhatHappensWhileAPollIsUnderWay(t *testing.T) {
	const (
		before = sec
		sent   = 2 * sec
		during = sent + sec/4
		taken  = sent + sec/2 // when the poll comes in
		claim  = 1000
		answer = 100
	)
	for _, c := range []struct {
		name                          string
		first, end                    time.Duration // 0 = not yet
		claimed, since                int64         // after the poll
		sinceEnd                      int64         // after it has ended as well
		sinceNext, sinceAfterNextsEnd int64         // after another poll instead, and the end then
	}{
		{"neither", 0, 0, claim, 0, 0, 0, 0},
		{"first token before", before, 0, 0, 0, -claim - answer, 0, -claim - answer},
		{"first token as it is sent", sent, 0, 0, 0, -claim - answer, 0, -claim - answer},
		{"first token during", during, 0, 0, claim, -answer, 0, -claim - answer},
		{"first token before, end during", before, during, 0, 0, 0, 0, 0},
		{"first token and end during", during, during + 1, 0, 0, 0, 0, 0},
		{"end without a first token during", 0, during, 0, 0, 0, 0, 0},
	} {
		for _, next := range []bool{false, true} {
			p := Default()
			p.Output = answer
			b := New(p)
			b.Add(0)
			poll := func(at time.Duration) {
				b.Observe(0, Sample{HasQueue: true, Waiting: 9, HasKV: true, KVUse: 0.5, CapacityTok: 10000}, at)
			}
			want := func(when string, claimed, since int64) {
				t.Helper()
				if v := b.View(0, 9*sec); v.HeldTok != 5000 || v.Claimed != claimed || v.Since != since {
					t.Errorf("%s: %s %d claimed and %d since, want %d and %d", c.name, when, v.Claimed, v.Since, claimed, since)
				}
			}
			p.Window = time.Minute
			b.SetParams(p)
			poll(0)
			r := reserve(b, 0, 10, true, before)
			b.Claim(r, claim)
			if c.first > 0 {
				b.FirstToken(r, c.first)
			}
			if c.end > 0 {
				b.End(r, c.end)
			}
			poll(sent) // taken in now
			want("taken in,", c.claimed, c.since)
			if next {
				poll(taken)
				want("at the next poll", c.claimed, c.sinceNext)
			}
			for range 2 {
				b.End(r, 3*sec)
			}
			if next {
				want("ended after the next poll", 0, c.sinceAfterNextsEnd)
			} else {
				want("ended", 0, c.sinceEnd)
			}
			poll(4 * sec)
			want("in the end", 0, 0)
			if a := &b.accounts[0]; a.young != (list{}) || a.holding != (list{}) || a.taken != 0 || a.given != 0 {
				t.Errorf("%s: left over %+v", c.name, a)
			}
		}
	}
}

// First tokens come from many goroutines and through the kernel: not in order.
func TestFirstTokensOutOfOrder(t *testing.T) {
	b := books(t, 1)
	var rs []*Reservation
	for i, first := range []time.Duration{5, 3, 6, 2} {
		r := reserve(b, 0, 1, true, 0)
		b.Claim(r, 1<<i)
		b.FirstToken(r, first*sec)
		rs = append(rs, r)
	}
	for _, c := range []struct {
		sent time.Duration
		most int64 // since; those whose first token came later must be in it
		must int64
	}{{1, 0b1111, 0b1111}, {4, 0b1111, 0b0101}, {5, 0b1100, 0b0100}, {6, 0, 0}} {
		b.Observe(0, Sample{HasQueue: true}, c.sent*sec)
		if v := b.View(0, c.sent*sec); v.Since&c.must != c.must || v.Since&^c.most != 0 {
			t.Errorf("poll sent at %d s: %b since, want %b at least and %b at most", c.sent, v.Since, c.must, c.most)
		}
	}
	for _, r := range rs {
		b.End(r, 7*sec)
	}
	b.Observe(0, Sample{HasQueue: true}, 8*sec)
	if v := b.View(0, 8*sec); v.Since != 0 || v.Requests != 0 || v.Decoding != 0 {
		t.Errorf("%+v is left", v)
	}
}

// What was young at a backend that went is nothing to whoever gets its slot and records.
func TestYoungOnesOfARemovedBackend(t *testing.T) {
	b := books(t, 1)
	var rs []*Reservation
	for range 3 {
		r := reserve(b, 0, 1, true, 0)
		b.Claim(r, 1000)
		b.FirstToken(r, 2*sec)
		rs = append(rs, r)
	}
	b.Add(0)
	mine := reserve(b, 0, 1, true, 0)
	b.Claim(mine, 10)
	b.FirstToken(mine, 2*sec)
	for _, r := range rs {
		b.End(r, 2*sec)
	}
	b.Observe(0, Sample{HasQueue: true, HasKV: true}, sec)
	if v := b.View(0, sec); v.Since != 10 || v.Requests != 1 {
		t.Errorf("%+v, want what the one took that is here", v)
	}
	b.End(mine, 3*sec)
	wantLoad(t, b, 0, 0, 0, 0)
}

// Lives of requests and polls in any order, against sums over all that has happened.
func TestSinceAddsUp(t *testing.T) {
	type life struct {
		r                 *Reservation
		claim, first, end int64 // nanoseconds; 0 = not yet
		seen              int   // polls taken in when it ended
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		p := Default()
		p.Output = 100
		b := New(p)
		b.Add(0)
		b.Observe(0, Sample{HasQueue: true, HasKV: true}, 0)
		var lives []*life
		polls, sent, asked := 1, int64(0), int64(0) // the latest poll taken in, and the one under way
		for now := int64(1); now < 300; now++ {
			at := time.Duration(now)
			some := func(which func(*life) bool) *life {
				for range 5 {
					if len(lives) > 0 {
						if l := lives[rnd.IntN(len(lives))]; which(l) {
							return l
						}
					}
				}
				return &life{}
			}
			switch rnd.IntN(6) {
			case 0:
				l := &life{r: reserve(b, 0, 1, true, at), claim: rnd.Int64N(4) * 1000}
				b.Claim(l.r, l.claim)
				lives = append(lives, l)
			case 1, 2:
				if l := some(func(l *life) bool { return l.first == 0 && l.end == 0 }); l.r != nil {
					b.FirstToken(l.r, at)
					l.first = now
				}
			case 3:
				if l := some(func(l *life) bool { return l.end == 0 }); l.r != nil {
					b.End(l.r, at)
					l.end, l.seen = now, polls
				}
			case 4:
				asked = now
			case 5:
				if asked > sent {
					b.Observe(0, Sample{HasQueue: true, Waiting: 9, HasKV: true}, time.Duration(asked))
					polls, sent = polls+1, asked
				}
			}
			var since int64
			for _, l := range lives {
				if l.first > sent && l.end == 0 {
					since += l.claim
				}
				if l.end > 0 && l.seen == polls && l.first > 0 && l.claim > 0 {
					since -= 100
					if l.first <= sent {
						since -= l.claim
					}
				}
			}
			if v := b.View(0, at); v.Since != since {
				t.Fatalf("%d since the poll, want %d", v.Since, since)
			}
		}
	}
}

// What a process held is gone with it. A connection to it may be noticed to be dead only
// when polls have found the next one, which has nothing to give back then.
func TestNothingIsGivenBackByTheDead(t *testing.T) {
	b := books(t, 1)
	poll := func(at time.Duration, process float64) {
		b.Observe(0, Sample{HasQueue: true, HasKV: true, HasStartTime: true, StartTime: process}, at)
	}
	begin := func(at time.Duration) *Reservation {
		r := reserve(b, 0, 1, true, at)
		b.Claim(r, 1000)
		b.FirstToken(r, at)
		return r
	}
	poll(0, 100)
	old, during := begin(sec), begin(3*sec)
	silent := reserve(b, 0, 1, false, sec)
	b.Claim(silent, 500)
	poll(2*sec, 200)
	want := func(since int64) {
		t.Helper()
		if v := b.View(0, 4*sec); v.Since != since {
			t.Errorf("%d since the poll, want %d", v.Since, since)
		}
	}
	b.FirstToken(silent, 3*sec) // it was released by the poll; this changes nothing
	want(1000)
	b.End(old, 4*sec)
	b.End(silent, 4*sec)
	want(1000)
	b.End(during, 4*sec)
	want(0)
	poll(4*sec, 200)
	b.End(begin(4*sec+1), 5*sec)
	want(-int64(b.params.Output))
	wantLoad(t, b, 0, 0, 0, 0)
}
