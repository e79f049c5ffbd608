package decide

import (
	"math/rand/v2"
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
