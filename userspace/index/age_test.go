package index

import (
	"testing"
	"time"
)

func TestAgeOfWhatGoesFirst(t *testing.T) {
	const s = time.Second
	x := newIndex(t, 1, func(p *Params) { p.Capacity, p.TTL, p.PendingTTL = 10, 100*s, 10*s })
	want := func(name string, keys, blocks int, age time.Duration, some bool) {
		t.Helper()
		if got, gives := evicts(x, Fill{Slot: 0, Keys: keys, Blocks: blocks}, 20*s); got != age || gives != some {
			t.Errorf("%s: age %v, %v; want %v, %v", name, got, gives, age, some)
		}
	}
	want("empty", 1000, 1000, 0, false)
	m := x.Mark(0, keys(0, 4), nil, 3*s)
	want("room for six", 6, 1000, 0, false)
	want("not for seven; marked", 7, 0, 17*s, true)
	x.Confirm(m, 5*s)
	want("confirmed", 7, 0, 17*s, true)
	hold(x, 0, keys(50, 4), 8*s)
	want("the first are the oldest", 3, 0, 17*s, true)
	x.Confirm(x.Mark(0, keys(0, 4), nil, 9*s), 9*s)
	want("used again", 3, 0, 12*s, true)
	x.SetCapacity(0, 9)
	want("in blocks there is room", 1000, 1, 0, false)
	want("in blocks there is none", 0, 2, 12*s, true)
	x.Mark(0, keys(50, 4), nil, 10*s)
	want("marked, though confirmed for longer", 0, 2, 11*s, true)
	x.Withdraw(x.Mark(0, keys(0, 4), nil, 11*s))
	x.Withdraw(x.Mark(0, keys(50, 4), nil, 12*s))
	want("a use that was withdrawn was one", 0, 2, 9*s, true)
	if age, held := x.Age(0, keys(50, 1)[0], 12*s-1); age != 0 || !held {
		t.Errorf("an age of %v before the use", age)
	}
	x.Forget(0)
	want("forgotten", 1000, 1000, 0, false)
	if _, held := x.Age(0, keys(0, 1)[0], 20*s); held {
		t.Error("a forgotten key has an age")
	}
	if _, some := evicts(x, Fill{Slot: 7, Keys: 1, Blocks: 1}, 20*s); some {
		t.Error("a slot that does not exist evicts")
	}
	if _, held := x.Age(-1, 1, 20*s); held {
		t.Error("a slot that does not exist holds a key")
	}
}

// evicts is Evicts of one fill.
func evicts(x *Index, f Fill, now time.Duration) (age time.Duration, some bool) {
	fills := []Fill{f}
	x.Evicts(fills, now)
	return fills[0].Age, fills[0].Evicts
}

// A slot that remembers more than the engine's first tier holds: a fill drives out what is
// oldest there.
func TestAFillDrivesOutOfTheFirstTier(t *testing.T) {
	const s = time.Second
	x := newIndex(t, 1, nil)
	x.SetCapacity(0, 40)
	hold(x, 0, keys(0, 10), 2*s)
	for _, c := range []struct {
		name         string
		blocks, tier int
		age          time.Duration
		some         bool
	}{
		{"room in both", 10, 20, 0, false},
		{"room in the second only", 11, 20, 18 * s, true},
		{"more than the first tier is remembered", 1, 5, 9 * s, true},
		{"a tier as large as the slot", 30, 40, 0, false},
		{"a tier as large as the slot, no room", 31, 40, 18 * s, true},
		{"a tier that is larger", 31, 400, 18 * s, true},
		{"a tier that nobody knows", 11, 0, 0, false},
	} {
		if age, some := evicts(x, Fill{Slot: 0, Keys: 11, Blocks: c.blocks, Tier: c.tier}, 20*s); age != c.age || some != c.some {
			t.Errorf("%s: age %v, %v; want %v, %v", c.name, age, some, c.age, c.some)
		}
	}
}
