package index

import (
	"math/rand/v2"
	"testing"

	"github.com/tautline/tautline/userspace/key"
)

func TestEvictedKeysAreRemembered(t *testing.T) {
	x := newIndex(t, 2, nil)
	x.SetCapacity(0, 100)
	x.Once(0, nil)
	first, second, third := keys(1000, 60), keys(2000, 60), keys(3000, 60)
	hold(x, 0, first, 0)
	hold(x, 0, second, 0)
	if run(x, 0, first, 0, true) == 60 {
		t.Fatal("nothing was given up")
	}
	for _, c := range []struct {
		name string
		slot int
		keys []key.Key
		want int
	}{
		{"given up", 0, first, 60},
		{"up to what it never had", 0, append(keys(1000, 60), keys(9000, 10)...), 60},
		{"held", 0, second, 60},
		{"never sent there", 0, third, 0},
		{"sent elsewhere", 1, first, 0},
		{"no such slot", 7, first, 0},
		{"no keys", 0, nil, 0},
	} {
		if got := x.Once(c.slot, c.keys); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	x.Forget(0)
	if got := x.Once(0, first); got != 0 {
		t.Errorf("%d keys of an engine that restarted", got)
	}
}

// What ran out of time, was withdrawn or refused was not given up for want of room, even
// if it once was and came back.
func TestOnlyWantOfRoomCounts(t *testing.T) {
	x := newIndex(t, 1, nil)
	x.SetCapacity(0, 100)
	x.Once(0, nil)
	back, expired, withdrawn, refused := keys(500, 90), keys(1000, 20), keys(2000, 20), keys(3000, 20)
	hold(x, 0, back, 0)
	hold(x, 0, keys(4000, 90), 0)
	x.End(x.Mark(0, keys(4000, 90), nil, 0))
	if got := x.Once(0, back); got != 90 {
		t.Fatalf("%d of 90 keys remembered", got)
	}
	hold(x, 0, back, 1) // again
	later := 2*Default().TTL + 2
	run(x, 0, back, later, true)
	hold(x, 0, expired, later)
	x.Withdraw(x.Mark(0, withdrawn, nil, later))
	x.Drop(x.Mark(0, refused, nil, later))
	run(x, 0, expired, 2*later, true)
	for _, ks := range [][]key.Key{back, expired, withdrawn, refused} {
		if got := x.Once(0, ks); got != 0 {
			t.Errorf("%d of the keys from %d", got, ks[0])
		}
	}
}

// However keys come and go, nothing is remembered that a slot never had, and nearly all
// of what it gave up not long ago is.
func TestEvictedAgainstEverything(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	x := newIndex(t, 1, nil)
	x.SetCapacity(0, 3000)
	x.Once(0, nil)
	var all [][]key.Key
	for range 2000 {
		ks := keys(int(rnd.Uint64N(1<<40)), 10+rnd.IntN(80))
		if got := x.Once(0, ks); got != 0 {
			t.Fatalf("%d keys that were never there", got)
		}
		hold(x, 0, ks, 0)
		all = append(all, ks)
	}
	seen := 0 // a prompt has 50 keys, so the 60 before the latest 60 were given up last
	for _, ks := range all[len(all)-120 : len(all)-60] {
		if n := x.Once(0, ks); n > len(ks)*8/10 {
			seen++
		}
	}
	if seen < 50 {
		t.Errorf("%d of the 60 prompts given up last are remembered for the most part", seen)
	}
}
