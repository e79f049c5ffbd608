package index

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// tape reads small numbers from a fuzz input; zeros after its end.
type tape []byte

func (t *tape) next(n int) int {
	if len(*t) == 0 {
		return 0
	}
	v := int((*t)[0]) % n
	*t = (*t)[1:]
	return v
}

// slotsTried stand in both words of a set and at its borders.
var slotsTried = []int{0, 1, 63, 64, 70}

// chain makes keys as prompts have them: heads shared, tails apart. key 0 is
// one of them.
func chain(t *tape) (keys []key.Key, cover []int32) {
	n, branch, at := 1+t.next(24), t.next(5), t.next(12)
	blocks, own := int32(0), t.next(3) == 0
	for i := range n {
		k := key.Key(i)
		if i > at {
			k += key.Key(branch) * 1000
		}
		keys = append(keys, k)
		blocks += int32(t.next(4))
		cover = append(cover, blocks)
	}
	if !own {
		cover = nil
	}
	return keys, cover
}

// pair is one request in both.
type pair struct {
	fast, slow Mark
	settled    bool
}

// play runs the same operations on the index and on the reference, and compares
// all that can be seen after each.
func play(t *testing.T, input []byte) {
	in := tape(input[:min(len(input), 8192)])
	p := Params{Capacity: 1 + in.next(40), TTL: 50, PendingTTL: 9}
	fast, slow := New(p), newReference(p)
	for _, s := range slotsTried {
		fast.Add(s)
		slow.Add(s)
	}
	var marks []pair
	settle := func() (m pair) {
		if len(marks) > 0 {
			if i := in.next(len(marks)); !marks[i].settled {
				marks[i].settled = true
				m = marks[i]
			}
		}
		return m
	}
	now := time.Duration(0)
	for step := 0; len(in) > 0; step++ {
		slot := slotsTried[in.next(len(slotsTried))]
		now += time.Duration(max(0, in.next(8)-4))
		switch op := in.next(32); op {
		default:
			keys, cover := chain(&in)
			marks = append(marks, pair{fast.Mark(slot, keys, cover, now), slow.Mark(slot, keys, cover, now), false})
		case 0, 1, 2, 3, 4, 5, 6, 7, 8:
			m := settle()
			fast.Confirm(m.fast, now)
			slow.Confirm(m.slow, now)
		case 9, 10, 11, 12:
			m := settle()
			fast.Withdraw(m.fast)
			slow.Withdraw(m.slow)
		case 13, 14:
			m := settle()
			fast.Drop(m.fast)
			slow.Drop(m.slow)
		case 15:
			fast.Forget(slot)
			slow.Forget(slot)
		case 16:
			if in.next(2) == 0 {
				fast.Remove(slot)
				slow.Remove(slot)
			} else {
				fast.Add(slot)
				slow.Add(slot)
			}
		case 17:
			n := in.next(60)
			fast.SetCapacity(slot, n)
			slow.SetCapacity(slot, n)
		case 18:
			p = Params{Capacity: 1 + in.next(40), TTL: time.Duration(1 + in.next(90)), PendingTTL: time.Duration(1 + in.next(15))}
			fast.SetParams(p)
			slow.SetParams(p)
		case 20, 21, 22, 23, 24, 25:
			if len(marks) > 0 {
				i := in.next(len(marks))
				fast.End(marks[i].fast)
				slow.End(marks[i].slow)
				marks = slices.Delete(marks, i, i+1)
			}
		case 19:
			now += time.Duration(in.next(60))
		}
		keys, _ := chain(&in)
		var got, want [72]int
		for _, pending := range []bool{true, false} {
			fast.Runs(keys, now, pending, got[:])
			slow.Runs(keys, now, pending, want[:])
			if got != want {
				t.Fatalf("step %d at %d: runs of %v (pending %v): %v, want %v", step, now, keys, pending, got, want)
			}
		}
		var fills []Fill
		for _, s := range slotsTried {
			fills = append(fills, Fill{Slot: s, Keys: len(keys), Blocks: 2 * len(keys)})
		}
		fast.Evicts(fills, now)
		for i, s := range slotsTried {
			if got, want := fast.Len(s), slow.Len(s); got != want {
				t.Fatalf("step %d at %d: slot %d holds %d keys, want %d", step, now, s, got, want)
			}
			age, some := fills[i].Age, fills[i].Evicts
			if wantAge, wantSome := slow.Evicts(s, len(keys), 2*len(keys), now); age != wantAge || some != wantSome {
				t.Fatalf("step %d at %d: slot %d evicts %v, of age %d, want %v, %d", step, now, s, some, age, wantSome, wantAge)
			}
			age, some = fast.Age(s, keys[0], now)
			if wantAge, wantSome := slow.Age(s, keys[0], now); age != wantAge || some != wantSome {
				t.Fatalf("step %d at %d: slot %d holds key 0 %v, of age %d, want %v, %d", step, now, s, some, age, wantSome, wantAge)
			}
		}
		checkShelves(t, fast, slow)
	}
	for _, s := range slotsTried {
		fast.Remove(s)
	}
	if fast.holders.count != 0 || fast.holders.size != minTable {
		t.Fatalf("%d keys in a table of %d left after all backends went", fast.holders.count, fast.holders.size)
	}
}

// checkShelves compares the order of use and the accounts.
func checkShelves(t *testing.T, fast *Index, slow *reference) {
	t.Helper()
	distinct := map[key.Key]bool{}
	for slot := range fast.shelves {
		f, s := &fast.shelves[slot], &slow.shelves[slot]
		if !f.live {
			continue
		}
		var order []key.Key
		for e := f.entries[0].links[byUse].next; e != 0; e = f.entries[e].links[byUse].next {
			if e == f.divider {
				order = append(order, divider)
				continue
			}
			order = append(order, f.entries[e].key)
			distinct[f.entries[e].key] = true
		}
		if !slices.Equal(order, s.order) || f.used != s.used {
			t.Fatalf("slot %d holds %v (%d blocks), want %v (%d)", slot, order, f.used, s.order, s.used)
		}
	}
	if len(distinct) != fast.holders.count {
		t.Fatalf("%d keys in the table of holders, %d on the shelves", fast.holders.count, len(distinct))
	}
}

func FuzzIndexAgainstReference(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomTape(seed, 300))
	}
	f.Fuzz(play)
}

func randomTape(seed uint64, n int) []byte {
	rnd := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

func TestIndexAgreesWithReferenceOnRandomOperations(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		play(t, randomTape(1000+seed, 6000))
	}
}
