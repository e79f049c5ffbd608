package decide

import (
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
)

// Among what is about as good as the cheapest, all agents take the same.
func TestHomeward(t *testing.T) {
	p := Default()
	for _, c := range []struct {
		name string
		cs   []Candidate
		want int
	}{
		{"the highest within one fill", []Candidate{{Cost: 100, Uncached: 50, Home: 1}, {Cost: 150, Uncached: 50, Home: 2}}, 1},
		{"not above it", []Candidate{{Cost: 100, Uncached: 50, Home: 1}, {Cost: 151, Uncached: 50, Home: 2}}, 0},
		{"not who holds less", []Candidate{{Cost: 100, Uncached: 50, Home: 1}, {Cost: 120, Uncached: 60, Home: 2}}, 0},
		{"what others left counts as held", []Candidate{{Cost: 100, Uncached: 100, Left: 50, Home: 1}, {Cost: 120, Uncached: 50, Home: 2}}, 1},
		{"nothing to fill: the cheapest", []Candidate{{Cost: 100, Home: 1}, {Cost: 100.5, Home: 2}}, 0},
		{"not behind more own tokens", []Candidate{{Cost: 100, Uncached: 50, Home: 1}, {Cost: 120, Uncached: 50, Tokens: 1, Home: 2}}, 0},
		{"not over what was used just now", []Candidate{{Cost: 100, Uncached: 50, Home: 1}, {Cost: 120, Uncached: 50, Evicts: true, Home: 2}}, 0},
		{"over what is older", []Candidate{{Cost: 100, Uncached: 50, Evicts: true, Age: time.Second, Home: 1}, {Cost: 120, Uncached: 50, Evicts: true, Age: time.Minute, Home: 2}}, 1},
	} {
		if got := (choice{&p, Question{Reuse: time.Second}, newRand(1)}).homeward(c.cs); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// Where prompts are unlike each other, each agent takes what the others leave to it.
func TestLeftAlone(t *testing.T) {
	p := Default()
	// at is a backend at which others have theirs in the mean.
	at := func(cost, theirs float64) Candidate {
		return Candidate{Cost: cost, Uncached: 50, Home: 7, Measured: true, Requests: 4, Theirs: theirs}
	}
	but := func(c Candidate, change func(*Candidate)) Candidate { change(&c); return c }
	for _, c := range []struct {
		name string
		cs   []Candidate
		want int
	}{
		{"whom others have least at", []Candidate{at(100, 3), at(300, 0.5), at(120, 2)}, 1},
		{"within five fills", []Candidate{at(100, 3), at(351, 0.5), at(350, 2)}, 2},
		{"the cheapest of those with hardly more", []Candidate{at(100, 3), at(300, 0.5), at(120, 0.9)}, 2},
		{"the cheapest of all is among them", []Candidate{at(100, 0.9), at(300, 0.5), at(120, 0.9)}, 0},
		{"what nobody has used for long is not better than what nobody uses", []Candidate{at(100, 1e-9), at(300, 0)}, 0},
		{"whatever it evicts", []Candidate{at(100, 3), but(at(300, 1), func(c *Candidate) { c.Evicts = true })}, 1},
		{"not behind more own tokens", []Candidate{at(100, 3), but(at(120, 1), func(c *Candidate) { c.Tokens = 1 })}, 0},
		{"not where more has to be filled", []Candidate{at(100, 3), but(at(120, 1), func(c *Candidate) { c.Uncached = 52 })}, 0},
		{"what little repeats is no reason to go there", []Candidate{at(100, 3), but(at(120, 1), func(c *Candidate) { c.Uncached = 51 })}, 1},
		{"none runs anywhere", []Candidate{but(at(100, 3), func(c *Candidate) { c.Requests = 0 }), but(at(120, 1), func(c *Candidate) { c.Requests = 0 })}, 1},
		{"not where many more run", []Candidate{at(100, 3), but(at(120, 1), func(c *Candidate) { c.Requests, c.Others = 4, 5 })}, 0},
		{"where a few more run", []Candidate{at(100, 3), but(at(120, 1), func(c *Candidate) { c.Requests, c.Others = 4, 2 })}, 1},
		{"not without room for the prompt", []Candidate{at(100, 3), but(at(120, 1), func(c *Candidate) { c.HasKV, c.Capacity, c.Held = true, 1000, 960 })}, 0},
		{"not where requests wait for memory", []Candidate{at(100, 3), but(at(120, 1), func(c *Candidate) { c.HasKV, c.KVUse, c.Waiting = true, 0.95, 1 })}, 0},
		{"not where polls show no queue", []Candidate{at(100, 3), but(at(120, 0), func(c *Candidate) { c.Measured = false })}, 0},
		{"not a gateway", []Candidate{at(100, 3), but(at(120, 0), func(c *Candidate) { c.Home = 0 })}, 0},
	} {
		q := Question{Reuse: time.Second, Output: 120, Needs: 200}
		if got := (choice{&p, q, newRand(1)}).leftAlone(c.cs); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// Of several that are left alone as much and cost the same each gets its turn.
func TestLeftAloneTies(t *testing.T) {
	p := Default()
	seen := map[int]bool{}
	for seed := range uint64(50) {
		cs := []Candidate{{Cost: 1, Home: 1, Measured: true, Theirs: 3}}
		for range 3 {
			cs = append(cs, Candidate{Cost: 1, Home: 1, Measured: true})
		}
		cs[0].Cost = 0
		for i := range cs {
			cs[i].Uncached = 50
		}
		seen[(choice{&p, Question{}, newRand(seed)}).leftAlone(cs)] = true
	}
	if len(seen) != 3 || seen[0] {
		t.Errorf("took %v", seen)
	}
}

// Of how many requests others have there: the mean, whether after one poll or after many.
func TestTheirs(t *testing.T) {
	f := stranger(1, "a", "b")
	b := &f.backends[0]
	for range 90 {
		if got := b.theirs(); got < 2.999 || got > 3.001 {
			t.Fatalf("%v, want the 3 of each poll", got)
		}
		f.Observe(0, load.Sample{Running: 3, HasQueue: true}, 0)
	}
	r := long(1 << 32)
	r.Pinned, r.Told = 0, true
	tk, _ := f.Route(r, 0)
	if got := b.theirs(); got < 3.999 || got > 4.001 {
		t.Errorf("%v, want the one that was told too", got)
	}
	tk.Done(0)
	f.Observe(0, load.Sample{Running: 3, HasQueue: true, StartTime: 1, HasStartTime: true}, 0)
	f.Observe(0, load.Sample{Running: 1, HasQueue: true, StartTime: 2, HasStartTime: true}, 0)
	if got := b.theirs(); got != 1 {
		t.Errorf("%v after a restart, want the 1 there is", got)
	}
	r.Told = false
	f.Route(r, 0)
	f.Route(r, 0)
	f.Observe(1, load.Sample{HasQueue: true}, 0)
	for range 200 {
		f.Observe(0, load.Sample{HasQueue: true}, 0) // which has not seen them yet
	}
	if got := b.theirs(); got != 0 {
		t.Errorf("%v, want no less than none", got)
	}
}

// Models have prompts of their own.
func TestUnlikePromptsOfOneModel(t *testing.T) {
	f := stranger(1, "a", "b", "c")
	for _, n := range []string{"d", "e", "f"} {
		f.Observe(f.Add(Spec{Site: "local", Name: n, Models: []string{"docs"}}), load.Sample{Running: 3, HasQueue: true}, 0)
	}
	for slot := range 3 {
		f.SetModels(slot, []string{"chat"})
	}
	send := func(model string, first key.Key, cached int) Decision {
		r := long(first << 32)
		r.Model = model
		return teach(f, r, 0, 12800, cached)
	}
	for i := range key.Key(60) {
		send("docs", 1+i, 0)
		send("chat", 100+i, 12000)
	}
	if d := send("docs", 200, 0); !f.Unlike() || d.Left != 0 {
		t.Errorf("documents: %+v", d)
	}
	if d := send("chat", 201, 0); d.Left == 0 {
		t.Errorf("chats have no homes: %+v", d)
	}
}

// What an engine is not told to be busy with by its polls, it may be all the same.
func TestPollsWithoutAQueue(t *testing.T) {
	p := Default()
	q := Question{Keys: 100, Blocks: 100, Tokens: 12800, Output: 300, Shared: true}
	cs := []Candidate{
		{Slot: 0, Uncached: 12800, Others: 10, Served: 8, Measured: true},
		{Slot: 1, Uncached: 12800, Others: 6, Served: 4, Measured: true},
		{Slot: 2, Uncached: 12800},
		{Slot: 3, Uncached: 12800, Measured: true, Gateway: true}, // of the others behind it nothing is known
	}
	pricedSpread(choice{&p, q, newRand(1)}, cs)
	if mean := (cs[0].Cost + cs[1].Cost) / 2; cs[2].Cost != mean || cs[3].Cost >= cs[1].Cost {
		t.Errorf("costs %v, %v, without a queue %v, gateway %v", cs[0].Cost, cs[1].Cost, cs[2].Cost, cs[3].Cost)
	}
}

// Prompts that somebody may have sent before have homes, others not. The engines know which
// are: they tell how much they found.
func TestUnlikePrompts(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	send := func(f *Fleet, first key.Key, cached int) Decision {
		return teach(f, long(first<<32), 0, 12800, cached)
	}
	// Four requests run at each; at c all but one are this agent's.
	fleet := func() *Fleet {
		f := stranger(1, names...)
		for range 3 {
			r := prompt(99<<40, 4)
			r.Model, r.Pinned = "", 2
			tk, _ := f.Route(r, 0)
			tk.FirstToken(0)
		}
		for range 20 {
			for slot := range names {
				f.Observe(slot, load.Sample{Running: 4, HasQueue: true}, 0)
			}
		}
		return f
	}
	for _, c := range []struct {
		name   string
		cached int
		alone  bool
	}{
		{"found nowhere", 0, true},
		{"a system prompt", 128, true},
		{"some sent it before", 640, false},
		{"engines that do not say", -1, false},
	} {
		f, at := fleet(), 0
		for i := range key.Key(100) {
			d := send(f, 1+i, c.cached)
			if i >= 40 && (d.Left == 0) != c.alone && d.Slot != 2 {
				t.Fatalf("%s, prompt %d: %+v", c.name, i, d)
			}
			if i >= 40 && d.Slot == 2 {
				at++
			}
		}
		if alone := at == 60; alone != c.alone || !alone && at > 40 {
			t.Errorf("%s: %d of 60 went to what others leave alone", c.name, at)
		}
		for i := range key.Key(5) {
			send(f, 200+i, 6400)
		}
		if d := send(f, 300, 0); f.Unlike() || d.Left == 0 && d.Slot != 2 {
			t.Errorf("%s, then prompts that others sent before: %+v", c.name, d)
		}
	}
}

// Where a long prompt will not find memory soon, what was left of it will be gone; where
// answers are of a few tokens it will find it.
func TestFullHome(t *testing.T) {
	for _, c := range []struct {
		name   string
		output float64
		needs  int64
		held   int64
		want   bool
	}{
		{"full", 300, 5000, 95_001, true},
		{"room", 300, 5000, 95_000, false},
		{"answers of a few tokens", 1, 5000, 99_000, false},
		{"a prompt of less than its answer", 300, 200, 99_900, false},
	} {
		e := Candidate{Capacity: 100_000, HasKV: true, Held: c.held}
		if got := e.full(&Question{Output: c.output, Needs: c.needs}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if (&Candidate{}).full(&Question{Output: 300, Needs: 5000}) {
		t.Error("full without a size")
	}
}

// Requests that other agents tell of are in flight here as well, until they end, and agents
// that hear of each other late do not all take what seems best.
func TestTold(t *testing.T) {
	var fleets []*Fleet
	for seed := range uint64(4) {
		fleets = append(fleets, among(seed, "a", "aa", "b", "bb", "c", "cc", "d", "dd", "e", "ee"))
	}
	type told struct {
		tickets []Ticket
		slot    int
	}
	tell := func(from int, first key.Key, slot int) (s told) {
		s.slot = slot
		for i, f := range fleets {
			if i != from {
				r := long(first)
				r.Pinned, r.Told = slot, true
				tk, _ := f.Route(r, 0)
				s.tickets = append(s.tickets, tk)
			}
		}
		return s
	}
	var all []told
	var own []Ticket
	same := 0
	for round := range 50 { // all four send before any hears of it
		seen := map[int]bool{}
		var sent []int
		for i, f := range fleets {
			tk, d := f.Route(long(key.Key(1+round*4+i)<<32), 0)
			if d.Left != 0 {
				t.Fatalf("others are taken to have left something, though they tell: %+v", d)
			}
			own, sent = append(own, tk), append(sent, d.Slot)
			if seen[d.Slot] && round >= 10 {
				same++
			}
			seen[d.Slot] = true
		}
		for i, slot := range sent {
			all = append(all, tell(i, key.Key(1+round*4+i)<<32, slot))
		}
		for _, tk := range own { // all are prefilled before the next come
			tk.FirstToken(0)
		}
		for _, s := range all {
			for _, tk := range s.tickets {
				tk.FirstToken(0)
			}
		}
		for len(all) > 40 {
			for _, tk := range all[0].tickets {
				tk.Done(0)
				tk.Done(0)
			}
			own[0].Done(0)
			all, own = all[1:], own[1:]
		}
	}
	if same > 40 { // by chance 22; if all took the cheapest, 120
		t.Errorf("%d of 160 took what another took at that moment", same)
	}
	fleets[0].Remove(3)
	if slot := fleets[0].Add(Spec{Site: "local", Name: "new"}); slot != 3 {
		t.Fatalf("added at %d", slot)
	}
	for _, s := range all {
		for _, tk := range s.tickets {
			tk.Done(0)
		}
	}
	for i, f := range fleets {
		for slot := range f.backends {
			if n := f.backends[slot].told; n != 0 {
				t.Errorf("agent %d: %d requests of others left at %d", i, n, slot)
			}
		}
	}
}
