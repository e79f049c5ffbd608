package load

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

func wantLoad(t *testing.T, b *Books, slot, requests, decoding int, tokens int64) {
	t.Helper()
	v := b.View(slot, 0)
	if v.Requests != requests || v.Decoding != decoding || v.Tokens != tokens {
		t.Fatalf("slot %d: %d requests, %d decoding, %d tokens; want %d, %d, %d",
			slot, v.Requests, v.Decoding, v.Tokens, requests, decoding, tokens)
	}
}

// reserve is Reserve of a new reservation.
func reserve(b *Books, slot int, tokens int64, stream bool, now time.Duration) *Reservation {
	r := new(Reservation)
	b.Reserve(r, slot, tokens, stream, now)
	return r
}

func TestEachPartOfAReservationIsReleasedOnce(t *testing.T) {
	b := books(t, 1)
	r, other := reserve(b, 0, 100, true, 0), reserve(b, 0, 7, true, 0)
	wantLoad(t, b, 0, 2, 0, 107)
	for range 3 {
		b.FirstToken(r, 0)
		wantLoad(t, b, 0, 2, 1, 7)
	}
	for range 3 {
		b.End(r, 0)
		b.FirstToken(r, 0)
		wantLoad(t, b, 0, 1, 0, 7)
	}
	third := reserve(b, 0, 50, true, 0)
	b.End(r, 0)
	wantLoad(t, b, 0, 2, 0, 57)
	b.Reserve(r, 0, 30, false, 0) // what ended can be used again
	wantLoad(t, b, 0, 3, 0, 87)
	b.End(other, 0)
	b.End(third, 0)
	wantLoad(t, b, 0, 1, 0, 30)
	b.End(r, 0)
	b.End(&Reservation{}, 0)
	wantLoad(t, b, 0, 0, 0, 0)
}

func TestReservationsOfARemovedBackendDoNotTouchTheNextOwnerOfItsSlot(t *testing.T) {
	b := books(t, 2)
	waiting, decoding := reserve(b, 0, 100, false, 0), reserve(b, 0, 200, true, 0)
	b.FirstToken(decoding, 0)
	b.Remove(0)
	b.Add(0)
	mine := reserve(b, 0, 5, true, 0)
	b.FirstToken(waiting, 0)
	b.Observe(0, Sample{HasQueue: true}, sec)
	for range 2 {
		b.End(waiting, 0)
		b.End(decoding, 0)
	}
	wantLoad(t, b, 0, 1, 0, 5)
	b.End(mine, 0)
	wantLoad(t, b, 0, 0, 0, 0)
}

// An answer that is not streamed shows no first token. Its tokens go when the
// engine's queue is too short for it to be still in there.
func TestPollReleasesAnswersThatAreNotStreamed(t *testing.T) {
	b := books(t, 1)
	var rs []*Reservation
	for i := range 5 {
		rs = append(rs, reserve(b, 0, 1<<i, i == 1, time.Duration(i)))
	}
	b.Observe(0, Sample{Waiting: 2, HasQueue: true}, sec)
	wantLoad(t, b, 0, 5, 2, 0b11010) // 0 and 2 were taken up; 1 is streamed and shows it itself
	b.Observe(0, Sample{Waiting: 9}, sec)
	wantLoad(t, b, 0, 5, 2, 0b11010) // no queue in the sample
	b.FirstToken(rs[1], sec)
	wantLoad(t, b, 0, 5, 3, 0b11000)
	b.Observe(0, Sample{HasQueue: true}, 2*sec)
	wantLoad(t, b, 0, 5, 5, 0)
	for _, r := range rs {
		b.End(r, 3*sec)
	}
	wantLoad(t, b, 0, 0, 0, 0)
}

func TestPollDoesNotReleaseWhatItsEngineCannotHaveCounted(t *testing.T) {
	b := books(t, 1)
	r := reserve(b, 0, 8, false, 10*sec)
	b.Observe(0, Sample{HasQueue: true}, 10*sec+settle/2)
	wantLoad(t, b, 0, 1, 0, 8)
	b.Observe(0, Sample{HasQueue: true}, 9*sec) // sent before
	wantLoad(t, b, 0, 1, 0, 8)
	b.Observe(0, Sample{HasQueue: true}, 10*sec+settle)
	wantLoad(t, b, 0, 1, 1, 0)
	b.End(r, 11*sec)
	wantLoad(t, b, 0, 0, 0, 0)
}

func TestQueueIsTheWorstOfTheWindow(t *testing.T) {
	type s struct {
		at      int
		waiting int
	}
	for _, c := range []struct {
		name     string
		samples  []s
		now      int
		queue    int
		measured bool
	}{
		{"no sample", nil, 10, 0, false},
		{"one", []s{{9, 4}}, 10, 4, true},
		{"the worst, not the latest", []s{{7, 9}, {8, 1}, {9, 3}}, 10, 9, true},
		{"at the edge", []s{{5, 9}, {9, 3}}, 10, 9, true},
		{"out of the window", []s{{4, 9}, {9, 3}}, 10, 3, true},
		{"all out of the window", []s{{3, 9}, {4, 3}}, 10, 0, false},
		{"from the future", []s{{9, 3}, {11, 9}}, 10, 3, true},
		{"only from the future", []s{{11, 9}}, 10, 0, false},
		{"zero is measured", []s{{9, 0}}, 10, 0, true},
		{"negative is zero", []s{{9, -3}}, 10, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := books(t, 1)
			for _, s := range c.samples {
				b.Observe(0, Sample{Waiting: s.waiting, HasQueue: true}, time.Duration(s.at)*sec)
			}
			v := b.View(0, time.Duration(c.now)*sec)
			if v.Queue != c.queue || v.Measured != c.measured {
				t.Fatalf("queue %d, measured %v; want %d, %v", v.Queue, v.Measured, c.queue, c.measured)
			}
		})
	}
}

// What requests hold is known while the poll is young and the engine has said
// how large its cache is, by this poll or an earlier one.
func TestHeldTokens(t *testing.T) {
	b := books(t, 1)
	want := func(now time.Duration, kv float64, has bool, held int64) {
		t.Helper()
		if v := b.View(0, now); v.KVUse != kv || v.HasKV != has || v.HeldTok != held || (v.Capacity > 0) != (held > 0) {
			t.Errorf("at %v: KV use %v (%v), %d tokens held; want %v (%v), %d", now, v.KVUse, v.HasKV, v.HeldTok, kv, has, held)
		}
	}
	want(0, 0, false, 0)
	b.Observe(0, Sample{KVUse: 0.5, HasKV: true}, sec)
	want(sec, 0.5, true, 0)
	b.Observe(0, Sample{KVUse: 0.5, HasKV: true, CapacityTok: 3000}, 2*sec)
	want(2*sec, 0.5, true, 1500)
	b.Observe(0, Sample{KVUse: 0.25, HasKV: true}, 3*sec)
	want(3*sec, 0.25, true, 750)
	want(3*sec+b.params.Window+1, 0, false, 0)
}

// A claim lasts as long as the tokens of its reservation, on every way out.
func TestClaims(t *testing.T) {
	b := books(t, 2)
	want := func(claimed int64) {
		t.Helper()
		if v := b.View(0, sec); v.Claimed != claimed {
			t.Fatalf("%d tokens claimed, want %d", v.Claimed, claimed)
		}
	}
	filled, hidden, ended := reserve(b, 0, 10, true, 0), reserve(b, 0, 0, false, 0), reserve(b, 0, 5, true, 0)
	b.Claim(filled, 1000)
	b.Claim(hidden, 200)
	b.Claim(ended, 30)
	want(1230)
	b.Claim(ended, 40) // instead of the 30
	want(1240)
	for range 2 {
		b.FirstToken(filled, 0)
		b.Claim(filled, 1000) // polls show it from now on
		want(240)
	}
	b.Observe(0, Sample{HasQueue: true, Waiting: 1}, sec) // the last one may still wait, the one that is not seen does not
	want(40)
	b.End(ended, sec)
	b.End(hidden, sec)
	b.Claim(&Reservation{}, 7)
	want(0)
	b.Claim(reserve(b, 0, 1, true, sec), 500)
	b.Remove(0)
	b.Add(0)
	want(0)
}

// Between polls the books know what own requests have taken and given back.
func TestSinceThePoll(t *testing.T) {
	p := Default()
	p.Output = 100
	b := New(p)
	b.Add(0)
	poll := func(at time.Duration) {
		b.Observe(0, Sample{HasQueue: true, HasKV: true, KVUse: 0.5, CapacityTok: 10000}, at)
	}
	want := func(since int64) {
		t.Helper()
		if v := b.View(0, sec); v.Since != since || v.HeldTok != 5000 {
			t.Fatalf("%d since the poll of %d, want %d since 5000", v.Since, v.HeldTok, since)
		}
	}
	poll(0)
	want(0)
	one, other, unclaimed := reserve(b, 0, 10, true, 0), reserve(b, 0, 10, true, 0), reserve(b, 0, 10, true, 0)
	b.Claim(one, 1000)
	b.Claim(other, 300)
	want(0) // as long as they are claimed
	for range 2 {
		b.FirstToken(one, 0)
	}
	b.FirstToken(unclaimed, 0)
	want(1000)
	poll(sec / 2) // which shows it
	want(0)
	b.End(unclaimed, sec)
	b.End(other, sec) // it never had a first token and took nothing
	want(0)
	for range 2 {
		b.End(one, sec) // and its answer
	}
	want(-1100)
	poll(sec)
	want(0)
}

func TestWindowIsBounded(t *testing.T) {
	b := books(t, 1)
	for i := range 10 * maxSamples {
		b.Observe(0, Sample{Waiting: i, HasQueue: true}, time.Duration(i))
	}
	if n := len(b.accounts[0].window.at); n != maxSamples {
		t.Fatalf("%d samples kept", n)
	}
	if v := b.View(0, 10*maxSamples); v.Queue != 10*maxSamples-1 {
		t.Fatalf("queue %d", v.Queue)
	}
}

func TestRestartIsSeen(t *testing.T) {
	start := func(v float64) Sample { return Sample{StartTime: v, HasStartTime: true} }
	count := func(v float64) Sample { return Sample{PromptTokens: v, HasPromptToks: true} }
	for _, c := range []struct {
		name       string
		prev, next Sample
		want       bool
	}{
		{"same start", start(1000), start(1000), false},
		{"rounded start", start(1000.4), start(1000), false},
		{"later start", start(1000), start(1060), true},
		{"other host's earlier start", start(1000), start(940), true},
		{"counter goes on", count(5), count(6), false},
		{"counter stands", count(5), count(5), false},
		{"counter back", count(5), count(4), true},
		{"counter back to nothing", count(5), count(0), true},
		{"counter missing", count(5), Sample{}, false},
		{"start missing", Sample{}, start(5), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := books(t, 1)
			c.prev.HasQueue, c.prev.Waiting = true, 9
			if b.Observe(0, c.prev, sec) {
				t.Fatal("the first sample is no restart")
			}
			if got := b.Observe(0, c.next, 2*sec); got != c.want {
				t.Fatalf("restart %v, want %v", got, c.want)
			}
			if v := b.View(0, 2*sec); v.Measured == c.want {
				t.Fatalf("after restart %v the old queue is measured %v", c.want, v.Measured)
			}
		})
	}
}

func TestScrapeWithoutAStartTimeHidesNoRestart(t *testing.T) {
	b := books(t, 1)
	b.Observe(0, Sample{StartTime: 1000, HasStartTime: true, CapacityTok: 64}, sec)
	b.Observe(0, Sample{}, 2*sec)
	if v := b.Engine(0); v.CapacityTok != 64 {
		t.Fatalf("capacity %d", v.CapacityTok)
	}
	if !b.Observe(0, Sample{StartTime: 2000, HasStartTime: true}, 3*sec) {
		t.Fatal("restart not seen")
	}
}

func TestMeansForgetAsTheStudySays(t *testing.T) {
	b := books(t, 1)
	m := b.Model("m")
	if l := b.Learned(m); l.Output != 300 || l.BytesPerToken != 4 {
		t.Fatalf("to begin with %+v", l)
	}
	s, n := 300.0, 1.0
	for i := range 500 {
		out := 100 + i
		b.Learn(m, 0, 5000, 1000, out)
		s, n = 0.99*s+float64(out), 0.99*n+1
		if got := b.Learned(m).Output; math.Abs(got-s/n) > 1e-9 {
			t.Fatalf("answer %d: o = %v, want %v", i, got, s/n)
		}
	}
	if got := b.Learned(m).BytesPerToken; math.Abs(got-5) > 0.01 {
		t.Fatalf("bytes per token %v, want 5", got)
	}
	if got := b.Engine(0).BytesPerToken; math.Abs(got-5) > 0.01 {
		t.Fatalf("bytes per token of the backend %v, want 5", got)
	}
	before := b.Learned(m)
	b.Learn(m, 0, 0, 100, 0)
	b.Learn(m, 0, 100, 0, -5)
	if b.Learned(m) != before {
		t.Fatal("an empty usage taught something")
	}
}

func TestLearnedRatioIsClamped(t *testing.T) {
	b := books(t, 1)
	for range 100 {
		b.Learn(0, 0, 1, 1e6, 0)
	}
	if got := b.Learned(0).BytesPerToken; got != minBytesPerToken {
		t.Fatalf("%v", got)
	}
	for range 5000 {
		b.Learn(0, 0, 1e9, 1, 0)
	}
	if got := b.Learned(0).BytesPerToken; got != maxBytesPerToken {
		t.Fatalf("%v", got)
	}
}

func TestModelsAreBounded(t *testing.T) {
	p := Default()
	p.Models = 3
	b := New(p)
	seen := map[int]int{}
	for i := range 100 {
		seen[b.Model(strings.Repeat("x", i))]++
	}
	if len(b.models) != 3 || len(b.names) != 2 || seen[0] != 98 {
		t.Fatalf("%d means, %d names, %v", len(b.models), len(b.names), seen)
	}
	if first, again := seen[1], b.Model("x"); first != 1 || again != 2 {
		t.Fatalf("numbers changed: %v, x is %d", seen, again)
	}
}

// Random lives of requests from many goroutines, with backends that go and come
// back in between: every account is at zero in the end and never below.
func TestAccountsReturnToZero(t *testing.T) {
	b := books(t, 4)
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 200 {
				slot, now := rnd.IntN(4), time.Duration(rnd.IntN(1000))*sec
				r := reserve(b, slot, rnd.Int64N(1000), rnd.IntN(2) == 0, now)
				b.Claim(r, rnd.Int64N(1000))
				for range rnd.IntN(6) {
					switch rnd.IntN(6) {
					case 0:
						b.FirstToken(r, now)
					case 1:
						b.Observe(slot, Sample{Waiting: rnd.IntN(4), HasQueue: true}, now)
					case 2:
						if rnd.IntN(20) == 0 {
							b.Remove(slot)
							b.Add(slot)
						}
					case 3:
						b.End(r, now)
					}
					if v := b.View(slot, now); v.Requests < 0 || v.Decoding < 0 || v.Tokens < 0 || v.Decoding > v.Requests {
						t.Errorf("below zero: %+v", v)
					}
				}
				b.End(r, now)
			}
		}()
	}
	wg.Wait()
	for s := range 4 {
		wantLoad(t, b, s, 0, 0, 0)
		if a := &b.accounts[s]; a.holding != (list{}) || a.young != (list{}) || a.taken != 0 || a.claimed != 0 || a.hidden != 0 {
			t.Fatalf("slot %d still lists reservations", s)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for _, c := range []struct {
		change func(*Params)
		want   string
	}{
		{func(p *Params) { p.Window = 0 }, "poll.window"},
		{func(p *Params) { p.EjectConnects = 0 }, "ejection.connects"},
		{func(p *Params) { p.EjectErrors = 0 }, "ejection.errors"},
		{func(p *Params) { p.Backoff = 0 }, "ejection.backoff "},
		{func(p *Params) { p.BackoffMax = 1 }, "ejection.backoff_max"},
		{func(p *Params) { p.BytesPerToken = math.NaN() }, "routing.bytes_per_token"},
		{func(p *Params) { p.Output = 0 }, "routing.completion_tokens"},
		{func(p *Params) { p.Models = 0 }, "routing.models"},
	} {
		p := Default()
		c.change(&p)
		if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestQueueBehindAGateway: a request joins one of its queues, so the mean counts; but
// any of those that wait may be ours.
func TestQueueBehindAGateway(t *testing.T) {
	for _, c := range []struct{ waiting, engines, depth int }{
		{9, 0, 9}, {9, 1, 9}, {9, 2, 5}, {8, 2, 4}, {1, 100, 1}, {0, 4, 0}, {-3, 2, 0},
	} {
		b := New(Default())
		b.Add(0)
		b.Observe(0, Sample{Waiting: c.waiting, Engines: c.engines, HasQueue: true}, sec)
		if v := b.View(0, sec); v.Queue != c.depth {
			t.Errorf("%d waiting at %d engines: queue %d, want %d", c.waiting, c.engines, v.Queue, c.depth)
		}
	}
	b := New(Default())
	b.Add(0)
	for range 4 {
		reserve(b, 0, 10, false, 0)
	}
	b.Observe(0, Sample{Waiting: 3, Engines: 3, HasQueue: true}, sec)
	if v := b.View(0, sec); v.Tokens != 30 {
		t.Errorf("%d tokens in flight, want those of the three that may wait", v.Tokens)
	}
}

// What an engine has beyond own requests is others'; an engine that has not taken up all
// own ones yet has none of others for that.
func TestOthers(t *testing.T) {
	for _, c := range []struct {
		name                        string
		own, waiting, running       int
		wantOthers, wantServed, was int
	}{
		{"idle", 0, 0, 0, 0, 0, 0},
		{"own ones", 3, 1, 2, 0, 0, 3},
		{"not all taken up", 3, 0, 1, 0, 0, 3},
		{"some of others", 3, 0, 10, 7, 7, 3},
		{"as many wait of them as of all", 4, 4, 8, 8, 6, 4},
		{"all of others wait", 0, 5, 0, 5, 0, 0},
		{"a nonsense", 0, -3, 2, 2, 2, 0},
	} {
		b := books(t, 1)
		for range c.own {
			reserve(b, 0, 10, true, 0)
		}
		b.Observe(0, Sample{Waiting: c.waiting, Running: c.running, HasQueue: true}, sec)
		reserve(b, 0, 10, true, sec) // after the poll
		if v := b.View(0, sec); v.Others != c.wantOthers || v.Served != c.wantServed || v.Own != c.was {
			t.Errorf("%s: %d others, %d served, %d own; want %d, %d, %d", c.name, v.Others, v.Served, v.Own, c.wantOthers, c.wantServed, c.was)
		}
		if v := b.View(0, sec+Default().Window+1); v.Others != 0 || v.Own != 0 {
			t.Errorf("%s: %d others long after", c.name, v.Others)
		}
		b.Observe(0, Sample{KVUse: 0.5, HasKV: true, HasPromptToks: true, PromptTokens: 9}, 2*sec) // says nothing of queues
		if v := b.View(0, 2*sec); v.Others != c.wantOthers {
			t.Errorf("%s: %d others after a poll that does not say", c.name, v.Others)
		}
		b.Observe(0, Sample{KVUse: 0.5, HasKV: true, HasPromptToks: true, PromptTokens: 1}, 3*sec)
		if v := b.View(0, 3*sec); v.Others != 0 {
			t.Errorf("%s: %d others at an engine that restarted", c.name, v.Others)
		}
		b.Observe(0, Sample{Waiting: 90, Running: 9, Engines: 4, HasQueue: true}, 4*sec)
		if v := b.View(0, 4*sec); v.Others != 0 || v.Served != 0 {
			t.Errorf("%s: %d others behind a gateway", c.name, v.Others)
		}
	}
}
