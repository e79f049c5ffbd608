package load

import (
	"testing"
	"time"
)

const sec = time.Second

func books(t *testing.T, slots int) *Books {
	t.Helper()
	p := Default()
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	b := New(p)
	for s := range slots {
		b.Add(s)
	}
	return b
}

func wantRefusal(t *testing.T, b *Books, at time.Duration, want Refusal) {
	t.Helper()
	if got := b.View(0, at).Refusal; got != want {
		t.Fatalf("at %v: %v, want %v", at, got, want)
	}
}

func TestClientErrorsNeverEject(t *testing.T) {
	b := books(t, 1)
	for i := range 1000 {
		b.Status(0, 400+i%100, sec)
	}
	wantRefusal(t, b, sec, Admitted)
}

func TestServerErrorsInARowEject(t *testing.T) {
	b := books(t, 1)
	for range 5 { // a success in between starts the count anew
		b.Status(0, 500, sec)
		b.Status(0, 502, sec)
		b.Status(0, 200, sec)
	}
	wantRefusal(t, b, sec, Admitted)
	for range 3 {
		b.Status(0, 500, sec)
	}
	wantRefusal(t, b, sec, Ejected)
}

// Who is out for its errors can be tried where nobody else is left; who cannot be
// reached, or said that it is full, cannot.
func TestErring(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(*Books)
		want bool
	}{
		{"errors", func(b *Books) { b.Status(0, 500, sec) }, true},
		{"no head in time", func(b *Books) { b.Status(0, 504, sec) }, true},
		{"full", func(b *Books) { b.Status(0, 503, sec) }, false},
		{"unreachable", func(b *Books) { b.ConnectFailed(0, sec) }, false},
		{"errors, then gone", func(b *Books) { b.Status(0, 500, sec); b.Unreachable(0, sec) }, false},
		{"nothing", func(*Books) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := books(t, 1)
			for range 3 {
				c.fail(b)
			}
			if got := b.View(0, sec).Erring; got != c.want {
				t.Errorf("erring %v, want %v", got, c.want)
			}
			b.Status(0, 200, sec)
			if b.View(0, sec).Erring {
				t.Error("erring after a success")
			}
		})
	}
}

func TestBackoffDoublesUpToItsMaximumAndASuccessEndsIt(t *testing.T) {
	b := books(t, 1)
	now := time.Duration(0)
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		b.ConnectFailed(0, now)
		b.ConnectFailed(0, now) // of a request sent at the same time: changes nothing
		wantRefusal(t, b, now+wait*sec-1, Ejected)
		now += wait * sec
		wantRefusal(t, b, now, Admitted)
	}
	b.Status(0, 404, now) // it answers
	b.ConnectFailed(0, now)
	wantRefusal(t, b, now+sec, Admitted)
}

func TestHalfOpenAdmitsOneProbeAtATime(t *testing.T) {
	b := books(t, 1)
	b.ConnectFailed(0, 0)
	old := reserve(b, 0, 10, true, 0) // the lone backend is tried while ejected
	b.End(old, sec)
	probe := reserve(b, 0, 10, true, sec)
	wantRefusal(t, b, sec, Probing)
	b.End(probe, 2*sec) // the client left before there was an answer
	wantRefusal(t, b, 2*sec, Admitted)
	second := reserve(b, 0, 10, true, 2*sec)
	b.End(probe, 2*sec) // again: the second probe is still out
	wantRefusal(t, b, 2*sec, Probing)
	b.Status(0, 200, 3*sec)
	wantRefusal(t, b, 3*sec, Admitted)
	b.End(second, 3*sec)
	wantRefusal(t, b, 3*sec, Admitted)
}

func TestFailedProbeEjectsLonger(t *testing.T) {
	b := books(t, 1)
	for range 3 {
		b.Status(0, 500, 0)
	}
	r := reserve(b, 0, 1, true, sec)
	b.Status(0, 500, sec)
	b.End(r, sec)
	wantRefusal(t, b, 3*sec-1, Ejected)
	wantRefusal(t, b, 3*sec, Admitted)
}

// A mark of being overloaded or unreachable that never clears starves a
// backend; one that clears on polls although each request fails feeds a broken one.
func TestGoodPollLetsTheProbeGoEarlyAfterConnectErrorsAnd503Only(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(*Books)
		want Refusal
	}{
		{"connect", func(b *Books) { b.ConnectFailed(0, sec) }, Admitted},
		{"503", func(b *Books) { b.Status(0, 503, sec); b.Status(0, 503, sec); b.Status(0, 503, sec) }, Admitted},
		{"500", func(b *Books) { b.Status(0, 500, sec); b.Status(0, 500, sec); b.Status(0, 500, sec) }, Ejected},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := books(t, 1)
			c.fail(b)
			b.Observe(0, Sample{HasQueue: true}, sec/2) // sent before: proves nothing
			b.PollFailed(0, sec+sec/4)
			wantRefusal(t, b, sec+sec/3, Ejected)
			b.Observe(0, Sample{HasQueue: true}, sec+sec/2)
			wantRefusal(t, b, sec+sec/2, c.want)
		})
	}
}

func TestFailedPollsRefuseNothing(t *testing.T) {
	b := books(t, 1)
	for i := range 100 {
		b.PollFailed(0, time.Duration(i)*sec)
	}
	wantRefusal(t, b, 100*sec, Admitted)
	if n := b.Engine(0).PollFailures; n != 100 {
		t.Fatalf("%d failures", n)
	}
}

func TestDrainOutlivesTheBreaker(t *testing.T) {
	b := books(t, 1)
	b.Drain(0, true)
	b.ConnectFailed(0, 0)
	b.Status(0, 200, sec)
	wantRefusal(t, b, sec, Draining)
	b.Drain(0, false)
	wantRefusal(t, b, sec, Admitted)
}

func TestUnknownSlotsAreAbsentAndHarmless(t *testing.T) {
	b := books(t, 1)
	for _, s := range []int{-1, 1, 1 << 20} {
		b.Drain(s, true)
		b.ConnectFailed(s, 0)
		b.Status(s, 500, 0)
		b.PollFailed(s, 0)
		b.Remove(s)
		b.Learn(0, s, 100, 10, 10)
		if b.Observe(s, Sample{}, 0) {
			t.Fatal("restart of nothing")
		}
		b.End(reserve(b, s, 5, true, 0), 0)
		if got := b.View(s, 0).Refusal; got != Absent {
			t.Fatalf("slot %d: %v", s, got)
		}
	}
}

// TestTrialIsShown: admitted, but nobody knows yet whether it serves.
func TestTrialIsShown(t *testing.T) {
	p := Default()
	b := books(t, 1)
	trial := func(at time.Duration, want bool) {
		t.Helper()
		if v := b.View(0, at); v.Trial != want {
			t.Errorf("at %v: %+v", at, v)
		}
	}
	trial(sec, false)
	for range p.EjectConnects {
		b.ConnectFailed(0, sec)
	}
	trial(sec, false)
	over := sec + p.Backoff
	trial(over, true)
	reserve(b, 0, 1, true, over)
	trial(over, false) // that is it
	b.Status(0, 200, over)
	trial(over, false)
	wantRefusal(t, b, over, Admitted)
}

// TestNoRequestProbesABackendThatPollsFindGone: its time out of service ends when a
// poll finds somebody, whatever the back-off; before, each client that came at its end
// paid for a look at a port where nobody listens.
func TestNoRequestProbesABackendThatPollsFindGone(t *testing.T) {
	for _, c := range []struct {
		name  string
		found func(b *Books, at time.Duration)
	}{
		{"a good poll", func(b *Books, at time.Duration) { b.Observe(0, Sample{}, at) }},
		{"a poll that failed otherwise", func(b *Books, at time.Duration) { b.PollFailed(0, at) }},
		{"an answer, to one that was sent all the same", func(b *Books, at time.Duration) { b.Status(0, 200, at) }},
	} {
		b := books(t, 1)
		const long = 1000 * sec
		for at := sec; at < long; at += sec {
			b.Unreachable(0, at)
			wantRefusal(t, b, at, Ejected)
			wantRefusal(t, b, at+sec-1, Ejected)
			if b.View(0, at).Trial {
				t.Fatalf("at %v: on trial", at)
			}
		}
		if n := b.Engine(0).PollFailures; n != 999 {
			t.Errorf("%d polls failed, want 999", n)
		}
		c.found(b, long)
		wantRefusal(t, b, long+Default().BackoffMax, Admitted)
	}
}

// TestPollThatAnAnswerHasOvertaken: a poll that finds nobody may take as long as its
// timeout, and who answers a request meanwhile is there. What failed after the answer
// counts, and so does such a poll while nobody answers.
func TestPollThatAnAnswerHasOvertaken(t *testing.T) {
	for name, fail := range map[string]func(b *Books, at time.Duration){
		"nobody there": func(b *Books, at time.Duration) { b.Unreachable(0, at) },
		"hung up":      func(b *Books, at time.Duration) { b.ConnectFailed(0, at) },
	} {
		for _, c := range []struct {
			code int
			want Refusal
		}{{200, Admitted}, {429, Admitted}, {502, Ejected}} { // the agent itself says 502 of who hangs up
			b := books(t, 1)
			b.Status(0, c.code, 2*sec)
			fail(b, sec) // sent before
			if got := b.View(0, 2*sec-1).Refusal; got != c.want {
				t.Errorf("%s, and %d since: %v, want %v", name, c.code, got, c.want)
			}
			fail(b, 2*sec)
			if v := b.View(0, 2*sec); v.Refusal != Ejected {
				t.Errorf("%s after a %d: %v", name, c.code, v.Refusal)
			}
			b.Status(0, 200, 4*sec)
			b.Status(0, 200, 3*sec) // told late
			fail(b, 4*sec-1)
			wantRefusal(t, b, 4*sec, Admitted)
		}
	}
	b := books(t, 1)
	b.Status(0, 200, 2*sec)
	b.Unreachable(0, sec)
	if n := b.Engine(0).PollFailures; n != 1 {
		t.Errorf("%d polls failed, want the one", n)
	}
	for range Default().EjectErrors {
		b.Status(0, 503, 2*sec)
	}
	wantRefusal(t, b, 2*sec, Ejected)
	wantRefusal(t, b, 2*sec+Default().BackoffMax, Admitted) // a request may look: it was not found gone
}
