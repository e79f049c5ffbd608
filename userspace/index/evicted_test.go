package index

import (
	"math/rand/v2"
	"testing"

	"github.com/tautline/tautline/userspace/key"
)

func TestEvictedKeysAreRemembered(t *testing.T) {
	x := newIndex(t, 2, nil)
	x.SetCapacity(0, 100)
	x.Evicted(0, nil, 0)
	first, second, third := keys(1000, 60), keys(2000, 60), keys(3000, 60)
	hold(x, 0, first, 0)
	x.End(x.Mark(0, second, nil, 0))
	both := append(keys(1000, 60), keys(9000, 10)...)
	kept := run(x, 0, first, 0, true)
	for _, c := range []struct {
		name      string
		slot      int
		keys      []key.Key
		run, want int
	}{
		{"given up", 0, first, kept, 60 - kept},
		{"from the first on, held or given up", 0, first, 0, 60},
		{"up to what it never had", 0, both, kept, 60 - kept},
		{"held", 0, second, 60, 0},
		{"never sent there", 0, third, 0, 0},
		{"sent elsewhere", 1, first, 0, 0},
		{"no such slot", 7, first, 0, 0},
		{"no keys", 0, nil, 0, 0},
	} {
		if got := x.Evicted(c.slot, c.keys, c.run); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if kept == 60 {
		t.Fatal("nothing was given up")
	}
	x.Forget(0)
	if got := x.Evicted(0, first, 0); got != 0 {
		t.Errorf("%d keys of an engine that restarted", got)
	}
}

// What ran out of time, was withdrawn or refused was not given up for want of room.
func TestOnlyWantOfRoomCounts(t *testing.T) {
	x := newIndex(t, 1, nil)
	x.SetCapacity(0, 100)
	x.Evicted(0, nil, 0)
	expired, withdrawn, refused := keys(1000, 20), keys(2000, 20), keys(3000, 20)
	hold(x, 0, expired, 0)
	x.Withdraw(x.Mark(0, withdrawn, nil, 0))
	x.Drop(x.Mark(0, refused, nil, 0))
	if got := run(x, 0, expired, Default().TTL+1, true); got != 0 {
		t.Fatalf("%d keys after their time", got)
	}
	for _, ks := range [][]key.Key{expired, withdrawn, refused} {
		if got := x.Evicted(0, ks, 0); got != 0 {
			t.Errorf("%d of the keys from %d", got, ks[0])
		}
	}
}

// However keys come and go, nothing is remembered that a slot never had, and what it gave
// up last is.
func TestEvictedAgainstEverything(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	x := newIndex(t, 1, nil)
	x.SetCapacity(0, 300)
	x.Evicted(0, nil, 0)
	had := map[key.Key]bool{}
	for range 3000 {
		ks := keys(int(rnd.Uint64N(1<<40)), 1+rnd.IntN(80))
		if got := x.Evicted(0, ks, 0); got > 0 && !had[ks[0]] {
			t.Fatalf("%d keys that were never there", got)
		}
		for _, k := range ks {
			had[k] = true
		}
		hold(x, 0, ks, 0)
	}
	last := keys(1<<50, 10)
	hold(x, 0, last, 0)
	x.End(x.Mark(0, last, nil, 0))
	x.SetCapacity(0, 1)
	if got := x.Evicted(0, last, 0); got < 9 { // two may share a place
		t.Errorf("%d of the 10 keys given up last", got)
	}
}
