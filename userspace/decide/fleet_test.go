package decide

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// newFleet returns a fleet of n backends of one model that never explores.
func newFleet(t testing.TB, n int, change func(*Params)) *Fleet {
	t.Helper()
	p := Default()
	p.Exploration = 0
	if change != nil {
		change(&p)
	}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	f := NewFleet(p, index.Default(), load.Default(), rand.New(rand.NewPCG(1, 2)))
	for i := range n {
		f.Add(Spec{Site: "local", Name: string(rune('a' + i)), Models: []string{"m"}})
	}
	return f
}

func prompt(first key.Key, n int) Request {
	r := Request{Model: "m", Bytes: n * key.BlockBytes, Stream: true, Pinned: -1}
	for i := range n {
		r.Keys = append(r.Keys, first+key.Key(i))
	}
	return r
}

func TestSecondOfTwoBackToBackRequestsSeesTheFirst(t *testing.T) {
	f := newFleet(t, 4, nil)
	t1, d1 := f.Route(prompt(1000, 100), 0)
	t2, d2 := f.Route(prompt(1000, 100), 0)
	if d1.Outcome != NoMatch || d2.Outcome != Sticky || d1.Slot != d2.Slot || d2.Run != 100 || d2.Uncached != 0 {
		t.Fatalf("first %+v, second %+v", d1, d2)
	}
	t1.Done(time.Second)
	t2.Done(time.Second)
	for _, s := range f.Snapshot(time.Second, nil) {
		if s.InFlight != 0 || s.Uncached != 0 || s.Decoding != 0 || s.IndexEntries != 0 {
			t.Fatalf("left over: %+v", s)
		}
	}
}

// state returns the snapshot of one slot.
func state(t testing.TB, f *Fleet, slot int, now Instant) BackendState {
	t.Helper()
	for _, s := range f.Snapshot(now, nil) {
		if s.Slot == slot {
			return s
		}
	}
	t.Fatalf("no slot %d", slot)
	return BackendState{}
}

func TestPendingMarksCountByPolicy(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		count  CountPending
		want   Outcome
	}{
		{StickyUntilSaturated, PendingAuto, Sticky},
		{StickyUntilSaturated, PendingNo, NoMatch},
		{QueuePriced, PendingAuto, NoMatch}, // a burst spreads until the first answer
		{QueuePriced, PendingYes, Sticky},
		{Priced, PendingAuto, Sticky},
	} {
		f := newFleet(t, 2, func(p *Params) { p.Policy, p.CountPending = c.policy, c.count })
		first, d1 := f.Route(prompt(1, 50), 0)
		if _, d := f.Route(prompt(1, 50), 0); d.Outcome != c.want {
			t.Errorf("%v, count_pending %v: %v before the answer", c.policy, c.count, d.Outcome)
		}
		first.Confirm(0)
		first.Done(0)
		if _, d := f.Route(prompt(1, 50), 0); d.Outcome != Sticky && d.Slot == d1.Slot {
			t.Errorf("%v, count_pending %v: %+v after the answer", c.policy, c.count, d)
		}
	}
}

func TestHowTicketsEndDecidesWhatIsRemembered(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(Ticket)
		want int
	}{
		{"confirmed", func(k Ticket) { k.Confirm(0); k.Done(0) }, 50},
		{"confirmed, then broken off", func(k Ticket) { k.Confirm(0); k.Refused(0); k.Withdraw(0); k.Done(0) }, 50},
		{"client left", func(k Ticket) { k.Done(0) }, 0},
		{"other failure", func(k Ticket) { k.Withdraw(0); k.Confirm(0); k.Done(0) }, 0},
		{"refused", func(k Ticket) { k.Refused(0); k.Done(0) }, 0},
		{"late confirmation", func(k Ticket) { k.Done(0); k.Confirm(0) }, 0},
	} {
		f := newFleet(t, 1, nil)
		k, _ := f.Route(prompt(1, 50), 0)
		c.end(k)
		if got := state(t, f, 0, 0).IndexEntries; got != c.want {
			t.Errorf("%s: %d keys remembered, want %d", c.name, got, c.want)
		}
	}
}

func TestRefusalDropsConfirmedKeysOfThisBackendOnly(t *testing.T) {
	f := newFleet(t, 2, func(p *Params) { p.Policy = RoundRobin })
	for range 2 {
		k, _ := f.Route(prompt(1, 50), 0)
		k.Confirm(0)
		k.Done(0)
	}
	k, d := f.Route(prompt(1, 50), 0)
	k.Refused(0)
	k.Done(0)
	if got := state(t, f, d.Slot, 0).IndexEntries; got != 0 {
		t.Fatalf("%d keys left where it was refused", got)
	}
	if got := state(t, f, 1-d.Slot, 0).IndexEntries; got != 50 {
		t.Fatalf("%d keys left at the other", got)
	}
}

func TestUncachedTokensAreReservedAndReleasedAtTheFirstToken(t *testing.T) {
	f := newFleet(t, 2, nil)
	k1, d := f.Route(prompt(1, 100), 0)
	k2, d2 := f.Route(prompt(1, 120), 0)
	if d.Uncached != 6400 || d.PromptTokens != 6400 || d2.Slot != d.Slot || d2.Uncached != 20*64 {
		t.Fatalf("%+v, %+v", d, d2)
	}
	if s := state(t, f, d.Slot, 0); s.InFlight != 2 || s.Uncached != 6400+20*64 {
		t.Fatalf("%+v", s)
	}
	k1.FirstToken(0)
	if s := state(t, f, d.Slot, 0); s.InFlight != 2 || s.Decoding != 1 || s.Uncached != 20*64 {
		t.Fatalf("%+v", s)
	}
	for range 2 {
		k1.Done(0)
		k2.Done(0)
	}
	s := state(t, f, d.Slot, 0)
	if s.InFlight != 0 || s.Decoding != 0 || s.Uncached != 0 || s.PromptTokens != 220*64 || s.MatchedTokens != 100*64 {
		t.Fatalf("%+v", s)
	}
	if s.Picks[NoMatch] != 1 || s.Picks[Sticky] != 1 {
		t.Fatalf("picks %v", s.Picks)
	}
}

func TestStickyUntilSaturatedSpillsOverTau(t *testing.T) {
	f := newFleet(t, 3, nil)
	warm, d := f.Route(prompt(1, 100), 0)
	warm.Confirm(0)
	warm.Done(0)
	home := d.Slot
	var spilled Decision
	for i := range 100 {
		r := prompt(1, 100)
		r.Keys = append(r.Keys, prompt(key.Key(1000*(1000+i)), 20).Keys...)
		r.Bytes, r.Tokens = 0, 28_000 // a sixth of it is new
		_, d := f.Route(r, 0)
		if d.Outcome == LoadOverride {
			spilled = d
			break
		}
		if d.Slot != home {
			t.Fatalf("request %d left its home as %v", i, d.Outcome)
		}
	}
	if spilled.Outcome != LoadOverride || spilled.Slot == home {
		t.Fatalf("never spilled: %+v", spilled)
	}
	if s := state(t, f, home, 0); s.Uncached <= f.Tau() || s.Uncached > f.Tau()+28_000 {
		t.Fatalf("spilled at %d uncached tokens, tau is %d", s.Uncached, f.Tau())
	}
}

func TestRestartOfAnEngineForgetsWhatItHeld(t *testing.T) {
	f := newFleet(t, 1, nil)
	k, _ := f.Route(prompt(1, 50), 0)
	k.Confirm(0)
	under, _ := f.Route(prompt(1, 60), 0)
	f.Observe(0, load.Sample{StartTime: 100, HasStartTime: true}, time.Second)
	f.Observe(0, load.Sample{StartTime: 200, HasStartTime: true}, 2*time.Second)
	under.Confirm(2 * time.Second) // of a request that the dead process had
	if got := state(t, f, 0, 2*time.Second).IndexEntries; got != 0 {
		t.Fatalf("%d keys of a dead engine", got)
	}
}

func TestIndexTakesTheSizeOfTheEngine(t *testing.T) {
	f := newFleet(t, 1, nil)
	f.Observe(0, load.Sample{CapacityTok: 64 * 100}, 0)
	k, _ := f.Route(prompt(1, 150), 0)
	k.Confirm(0)
	k.Done(0)
	if s := state(t, f, 0, 0); s.IndexCapacity != 100 || s.IndexEntries != 100 {
		t.Fatalf("%+v", s)
	}
	// Eight bytes a token: the same tokens are twice the blocks.
	for range 2000 {
		k, _ := f.Route(prompt(1, 150), 0)
		k.Usage(150*256/8, 0, 10)
		k.Done(0)
	}
	f.Observe(0, load.Sample{CapacityTok: 64 * 100}, 0)
	if s := state(t, f, 0, 0); s.IndexCapacity < 198 || s.IndexCapacity > 200 {
		t.Fatalf("capacity %d blocks, want 200", s.IndexCapacity)
	}
	ip := index.Default()
	ip.CapacityTokens = 32 * 50
	f.SetIndexParams(ip)
	if s := state(t, f, 0, 0); s.IndexCapacity != 50 || s.IndexEntries > 50 {
		t.Fatalf("%+v", s)
	}
}

func TestTokensAreEstimatedPerModelFromUsage(t *testing.T) {
	f := newFleet(t, 1, nil)
	f.SetModels(0, []string{"m", "n"})
	for range 1000 {
		k, _ := f.Route(prompt(1, 100), 0)
		k.Usage(100*256/2, 0, 700)
		k.Done(0)
	}
	_, d := f.Route(prompt(1, 100), 0)
	if d.PromptTokens < 12700 || d.PromptTokens > 12800 {
		t.Fatalf("m: %d tokens, want 12800", d.PromptTokens)
	}
	r := prompt(1, 100)
	r.Tokens = 77
	if _, d = f.Route(r, 0); d.PromptTokens != 77 {
		t.Fatalf("own count: %d", d.PromptTokens)
	}
}

func TestRequestsWithoutKeysTeachNoBytesPerToken(t *testing.T) {
	f := newFleet(t, 1, nil)
	k, d := f.Route(Request{Model: "m", Bytes: 4000, Pinned: -1}, 0)
	if d.PromptTokens != 1000 || d.Uncached != 1000 {
		t.Fatalf("%+v", d)
	}
	k.Usage(10, 0, 10)
	k.Done(0)
	if _, d := f.Route(Request{Model: "m", Bytes: 4000, Pinned: -1}, 0); d.PromptTokens != 1000 {
		t.Fatalf("%+v", d)
	}
}

func TestOneSyntheticKeyMayStandForThousandsOfTokens(t *testing.T) {
	f := newFleet(t, 2, nil)
	r := Request{Model: "m", Keys: []key.Key{1, 2}, Cover: []int32{859, 883}, Tokens: 56_500, Pinned: -1}
	_, d := f.Route(r, 0)
	r.Keys = []key.Key{1, 3}
	_, e := f.Route(r, 0)
	if d.Outcome != NoMatch || e.Outcome != Sticky || e.Run != 1 || e.Uncached != 56_500-54_964 {
		t.Fatalf("%+v, %+v", d, e)
	}
	r.Cover = r.Cover[:1] // shorter than the keys: only as many keys count
	if _, d := f.Route(r, 0); d.Keys != 1 {
		t.Fatalf("%+v", d)
	}
}

func TestPromptBeyondTheLastKeyIsNeverMatchedWhole(t *testing.T) {
	f := newFleet(t, 1, nil)
	r := prompt(1, key.MaxKeys)
	r.Bytes = 2 << 20
	k, _ := f.Route(r, 0)
	k.Confirm(0)
	_, d := f.Route(r, 0)
	reach := int64(index.Covered(key.MaxKeys, nil)) * key.BlockBytes / 4
	if d.Run != key.MaxKeys || d.PromptTokens != 2<<18 || d.Uncached != 2<<18-reach {
		t.Fatalf("%+v, keys reach %d tokens", d, reach)
	}
}

// A client whose requests make engines fail may eject all of them. The others are served
// on, and the first answer that is none of those errors ends the ejection.
func TestRequestsThatBreakEnginesDoNotCloseTheFleet(t *testing.T) {
	f := newFleet(t, 3, nil)
	for range 3 {
		for slot := range 3 {
			f.Status(slot, 500, 0)
		}
	}
	f.ConnectFailed(2, 0)
	f.Unreachable(2, 0)
	var took [3]int
	for range 10 {
		_, d := f.Route(prompt(1, 10), 0)
		if d.Slot < 0 || d.Outcome != Lone || d.Reason != ReasonEjectedAll {
			t.Fatalf("%+v", d)
		}
		took[d.Slot]++
	}
	if took != [3]int{5, 5, 0} {
		t.Errorf("spread %v: by what is in flight, and not to who is not there", took)
	}
	f.Status(1, 200, 0)
	if _, d := f.Route(prompt(1, 10), 0); d.Slot != 1 || d.Reason != ReasonNone {
		t.Fatalf("%+v", d)
	}
}

// Requests one at a time must not all go to the same of them: it may be the one that is
// broken, and the others not.
func TestTiesOfThoseThatErrAreBrokenAtRandom(t *testing.T) {
	f := newFleet(t, 3, nil)
	for range 3 {
		for slot := range 3 {
			f.Status(slot, 500, 0)
		}
	}
	var took [3]int
	for range 60 {
		k, d := f.Route(prompt(1, 10), 0)
		if d.Reason != ReasonEjectedAll {
			t.Fatalf("%+v", d)
		}
		took[d.Slot]++
		k.Done(0)
	}
	if min(took[0], took[1], took[2]) < 10 {
		t.Errorf("tried %v times, want each about as often", took)
	}
}

func TestUnknownModelsAndUnknownBackends(t *testing.T) {
	f := newFleet(t, 2, nil)
	r := prompt(1, 10)
	r.Model = "other"
	if k, d := f.Route(r, 0); d.Slot != -1 || d.Reason != ReasonUnknownModel || k != (Ticket{}) {
		t.Fatalf("%+v", d)
	}
	r.Model = ""
	if _, d := f.Route(r, 0); d.Slot < 0 {
		t.Fatalf("a request without a model: %+v", d)
	}
	late := f.Add(Spec{Name: "late"}) // has not said what it serves
	if !f.Unlearned("other") || f.Unlearned("m") || f.Unlearned("") {
		t.Fatal("the late one may serve what nobody else is known to serve, and nothing more")
	}
	r.Model = "other"
	if _, d := f.Route(r, 0); d.Slot != late || d.Outcome != Lone {
		t.Fatalf("%+v", d)
	}
	f.SetModels(late, []string{"m"})
	if _, d := f.Route(r, 0); d.Slot != -1 {
		t.Fatalf("%+v", d)
	}
	for i := range 2 {
		f.Drain(i, true)
	}
	f.Remove(late)
	if _, d := f.Route(prompt(1, 10), 0); d.Slot != -1 || d.Reason != ReasonNotAdmitted {
		t.Fatalf("%+v", d)
	}
	c := f.Counts()
	if c.Refusals[ReasonUnknownModel] != 2 || c.Refusals[ReasonNotAdmitted] != 1 || c.Decisions[StickyUntilSaturated][None] != 3 {
		t.Fatalf("%+v", c)
	}
}

func TestModelsThatNobodyNamesLeaveNothingBehind(t *testing.T) {
	f := newFleet(t, 1, nil)
	for i := range 1000 {
		f.SetModels(0, []string{"m", string(rune('A' + i))})
	}
	f.Remove(0)
	if len(f.models) != 0 {
		t.Fatalf("%d models left", len(f.models))
	}
}

func TestPinnedGoesThereOrNowhere(t *testing.T) {
	f := newFleet(t, 3, nil)
	f.Drain(1, true)
	f.SetModels(2, []string{"n"})
	f.ConnectFailed(0, 100*time.Second)
	for _, c := range []struct {
		slot int
		at   time.Duration
		want Outcome
		why  Reason
	}{
		{0, 100 * time.Second, None, ReasonPinRefused},
		{0, 200 * time.Second, Pinned, ReasonNone},
		{1, 0, None, ReasonPinRefused},
		{2, 0, None, ReasonPinGone},
		{7, 0, None, ReasonPinGone},
	} {
		r := prompt(1, 0)
		r.Pinned = c.slot
		k, d := f.Route(r, c.at)
		if d.Outcome != c.want || d.Reason != c.why || (d.Slot == c.slot) != (c.want == Pinned) {
			t.Errorf("pinned to %d: %+v, want %v, %v", c.slot, d, c.want, c.why)
		}
		k.Done(c.at)
	}
}

func TestAnOldTicketDoesNothingToTheRequestThatTookOverItsRecord(t *testing.T) {
	f := newFleet(t, 1, nil)
	old, _ := f.Route(prompt(1, 50), 0)
	old.Done(0)
	next, _ := f.Route(prompt(1, 50), 0)
	if next.fl != old.fl || next == old {
		t.Fatal("the record was not used again")
	}
	want := state(t, f, 0, 0)
	old.FirstToken(0)
	old.Usage(100, 100, 100)
	old.Refused(0)
	old.Done(0)
	if got := state(t, f, 0, 0); !reflect.DeepEqual(got, want) || got.InFlight != 1 || got.Uncached != 50*64 {
		t.Fatalf("%+v, was %+v", got, want)
	}
	next.Done(0)
	if got := state(t, f, 0, 0); got.InFlight != 0 || got.Uncached != 0 {
		t.Fatalf("in flight at the end: %+v", got)
	}
}

func TestRetryMovesTheReservation(t *testing.T) {
	f := newFleet(t, 2, nil)
	r := prompt(1, 50)
	first, d1 := f.Route(r, 0)
	f.ConnectFailed(d1.Slot, 0)
	r.Tried, r.Moves = []int{d1.Slot}, first
	second, d2 := f.Route(r, 0)
	if d2.Slot == d1.Slot || d2.Slot < 0 {
		t.Fatalf("%+v after %+v", d2, d1)
	}
	if s := state(t, f, d1.Slot, 0); s.InFlight != 0 || s.Uncached != 0 || s.IndexEntries != 0 {
		t.Fatalf("left at the first: %+v", s)
	}
	first.Done(0) // the deferred one
	if s := state(t, f, d2.Slot, 0); s.InFlight != 1 || s.Uncached != 50*64 {
		t.Fatalf("at the second: %+v", s)
	}
	r.Tried, r.Moves = []int{0, 1}, second
	if _, d := f.Route(r, 0); d.Reason != ReasonTried || f.Counts().InFlight != 0 {
		t.Fatalf("%+v, %d in flight", d, f.Counts().InFlight)
	}
}

func TestNewConversationStaysAtItsSiteWhileThatAdmits(t *testing.T) {
	f := newFleet(t, 2, nil)
	here := f.Add(Spec{Site: "here", Name: "x", Models: []string{"m"}})
	r := prompt(1, 0)
	r.Site = "here"
	for range 20 {
		if _, d := f.Route(r, 0); d.Slot != here {
			t.Fatalf("%+v", d)
		}
	}
	f.Drain(here, true)
	if _, d := f.Route(r, 0); d.Slot == here || d.Slot < 0 {
		t.Fatalf("%+v", d)
	}
}

func TestRoundRobinTakesTurnsPerModel(t *testing.T) {
	f := newFleet(t, 3, func(p *Params) { p.Policy = RoundRobin })
	for i := range 3 {
		f.SetModels(i, []string{"m", "n"})
	}
	turn := func(model string) int {
		r := prompt(1, 10)
		r.Model = model
		k, d := f.Route(r, 0)
		k.Done(0)
		return d.Slot
	}
	m, n := turn("m"), turn("n")
	for range 30 { // an even mix must not tie each model to every other backend
		m = (m + 1) % 3
		n = (n + 1) % 3
		if got := turn("m"); got != m {
			t.Fatalf("m went to %d, want %d", got, m)
		}
		if got := turn("n"); got != n {
			t.Fatalf("n went to %d, want %d", got, n)
		}
	}
}

func TestExplainChangesNothing(t *testing.T) {
	f, twin := newFleet(t, 8, nil), newFleet(t, 8, nil)
	for i := range 200 {
		r := prompt(key.Key(1000*(i%7)), 20+i%40)
		for range 3 {
			d, cs := f.Explain(r, Instant(i))
			if len(cs) != 8 || d.Slot < 0 {
				t.Fatalf("%+v, %d candidates", d, len(cs))
			}
		}
		_, a := f.Route(r, Instant(i))
		_, b := twin.Route(r, Instant(i))
		if a != b {
			t.Fatalf("request %d: %+v with explanations, %+v without", i, a, b)
		}
	}
	a, b := f.Snapshot(200, nil), twin.Snapshot(200, nil)
	for i := range a {
		a[i].Spec, b[i].Spec = Spec{}, Spec{}
	}
	if !equalStates(a, b) || f.Counts() != twin.Counts() {
		t.Fatal("the accounts differ")
	}
}

func TestExplainTellsWhatWasCompared(t *testing.T) {
	f := newFleet(t, 3, nil)
	k, d := f.Route(prompt(1, 100), 0)
	k.Confirm(0)
	e, cs := f.Explain(prompt(1, 100), 0)
	if e.Outcome != Sticky || e.Slot != d.Slot {
		t.Fatalf("%+v", e)
	}
	for _, c := range cs {
		holds := c.Slot == d.Slot
		if c.Sticky != holds || (c.Run == 100) != holds || (c.Uncached == 0) != holds || c.Cost != float64(c.Tokens+c.Uncached) {
			t.Fatalf("%+v", c)
		}
	}
}

// TestALongRequestIsNeverReaped (G2): no clock ends the accounts of a request that runs,
// whatever polls say meanwhile; its end does.
func TestALongRequestIsNeverReaped(t *testing.T) {
	f := newFleet(t, 2, nil)
	ticket, d := f.Route(prompt(1000, 100), 0)
	var now Instant
	for range 1000 {
		now += time.Minute
		f.Observe(d.Slot, load.Sample{HasQueue: true}, now)
		f.PollFailed(d.Slot, now)
		if s := state(t, f, d.Slot, now); s.InFlight != 1 || s.Uncached != d.Uncached {
			t.Fatalf("after %v: %d requests, %d tokens in flight", now, s.InFlight, s.Uncached)
		}
	}
	ticket.Done(now)
	if s := state(t, f, d.Slot, now); s.InFlight != 0 || s.Uncached != 0 {
		t.Errorf("at the end: %d requests, %d tokens in flight", s.InFlight, s.Uncached)
	}
}

// The order in which weighted-blend hands out cold requests counts those of which
// nobody held anything, wherever load or chance sent the others.
func TestColdIsWhatNobodyHolds(t *testing.T) {
	f := newFleet(t, 3, func(p *Params) { p.Policy = WeightedBlend })
	sent := func(r Request, slot int) {
		r.Pinned = slot
		ticket, d := f.Route(r, time.Second)
		if d.Slot != slot {
			t.Fatalf("sent to %d, want %d", d.Slot, slot)
		}
		ticket.Confirm(time.Second)
		ticket.Done(time.Second)
	}
	sent(prompt(1000, 10), 0)
	sent(prompt(1000, 10), 1) // backend 0 holds it
	sent(prompt(2000, 10), 2)
	_, cs := f.Explain(prompt(3000, 10), 2*time.Second)
	if cs[0].LastCold == 0 || cs[1].LastCold != 0 || cs[2].LastCold <= cs[0].LastCold {
		t.Errorf("latest cold requests %d, %d, %d", cs[0].LastCold, cs[1].LastCold, cs[2].LastCold)
	}
}
