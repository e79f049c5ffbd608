package datapath_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
)

// halfMade pins maps under these names as a start would that is killed then: their
// values are zero, the meta map's too. other gives them another layout.
func halfMade(t *testing.T, pins string, names []string, other bool) {
	t.Helper()
	spec, err := bpf.LoadTautline()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(maps.Dir(pins), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		s := spec.Maps[name].Copy()
		if other && name != bpf.TautlineMapMeta {
			s = &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1}
		}
		m, err := ebpf.NewMap(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Pin(filepath.Join(maps.Dir(pins), name)), m.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStartAfterAStartThatDied: an agent may be killed after any of its pins, which
// are made in any order, and before the meta map is written. The next one starts.
func TestStartAfterAStartThatDied(t *testing.T) {
	pins := pinPath(t)
	all := bpf.Pinned() // meta last
	backwards := slices.Clone(all)
	slices.Reverse(backwards)
	for _, order := range [][]string{all, backwards} {
		for n := range len(order) + 1 {
			for _, other := range []bool{false, true} {
				names := order[:n]
				halfMade(t, pins, names, other)
				if err := maps.Verify(pins); n > 0 && !errors.Is(err, maps.ErrHalfMade) {
					t.Errorf("%q: %v, want ErrHalfMade", names, err)
				}
				if set, err := maps.Open(pins); err == nil {
					t.Errorf("%q can be read", names)
					_ = set.Close()
				}
				if n == len(order) { // it loads the programs, which takes time
					for _, c := range datapath.Probe(datapath.Options{PinPath: pins}) {
						if c.Name == "pins" && (!c.OK || !strings.Contains(c.Detail, "half made")) {
							t.Errorf("%q: the doctor says %+v", names, c)
						}
					}
				}
				if err := open(t, pins).Close(); err != nil {
					t.Fatal(err)
				}
				if err := maps.Verify(pins); err != nil {
					t.Errorf("after a start over %q: %v", names, err)
				}
				if err := os.RemoveAll(pins); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestHalfMadePinsOfALivingAgent: its lock says that it lives, whatever its pins look
// like. Of those that start at once over what a dead one left, one does.
func TestHalfMadePinsOfALivingAgent(t *testing.T) {
	pins := pinPath(t)
	halfMade(t, pins, bpf.Pinned()[2:5], false)
	const n = 4
	var wg sync.WaitGroup
	var opened [n]*datapath.Datapath
	var errs [n]error
	for i := range n {
		wg.Go(func() { opened[i], errs[i] = datapath.Open(datapath.Options{PinPath: pins}) })
	}
	wg.Wait()
	var living *datapath.Datapath
	for i, d := range opened {
		switch {
		case d != nil && living != nil:
			t.Error("two have started")
			_ = d.Close()
		case d != nil:
			living = d
		case !errors.Is(errs[i], datapath.ErrLocked):
			t.Errorf("got %v, want ErrLocked", errs[i])
		}
	}
	if living == nil {
		t.Fatal("none has started")
	}
	if err := maps.Verify(pins); err != nil {
		t.Error(err)
	}
	// As between its first pin and its last word.
	if err := os.Remove(filepath.Join(maps.Dir(pins), bpf.TautlineMapMeta)); err != nil {
		t.Fatal(err)
	}
	before := list(t, maps.Dir(pins))
	if _, err := datapath.Open(datapath.Options{PinPath: pins}); !errors.Is(err, datapath.ErrLocked) {
		t.Errorf("got %v, want ErrLocked", err)
	}
	if after := list(t, maps.Dir(pins)); after != before {
		t.Errorf("pins were %s, are %s", before, after)
	}
	if err := living.Close(); err != nil {
		t.Error(err)
	}
}

// TestStartThatFailsLeavesNoPins, where there were none.
func TestStartThatFailsLeavesNoPins(t *testing.T) {
	pins := pinPath(t)
	if _, err := datapath.Open(datapath.Options{PinPath: pins, Cgroup: "/proc"}); err == nil {
		t.Fatal("attached to no cgroup")
	}
	if _, err := os.Stat(maps.Dir(pins)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pins are left: %v", err)
	}
	if err := open(t, pins).Close(); err != nil {
		t.Fatal(err)
	}
	before := list(t, maps.Dir(pins))
	if _, err := datapath.Open(datapath.Options{PinPath: pins, Cgroup: "/proc"}); err == nil {
		t.Fatal("attached to no cgroup")
	}
	if after := list(t, maps.Dir(pins)); after != before {
		t.Errorf("pins were %s, are %s", before, after)
	}
}
