package datapath_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/test/testutil"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
}

// pinPath returns a path on a bpf file system of the test's own.
func pinPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(testutil.BPFFS(t), "tautline")
}

func open(t *testing.T, pins string) *datapath.Datapath {
	t.Helper()
	d, err := datapath.Open(datapath.Options{PinPath: pins})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPins(t *testing.T) {
	pins := pinPath(t)
	d := open(t, pins)
	entries, err := os.ReadDir(maps.Dir(pins))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := bpf.Pinned()
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("pins %q, want %q", names, want)
	}

	if err := d.Maps().PutBackend(4, maps.Backend{Name: "gpu4", Queue: 7}); err != nil {
		t.Fatal(err)
	}
	reader, err := maps.Open(pins)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := reader.Backends()
	if err != nil || rows[4].Name != "gpu4" || rows[4].Queue != 7 {
		t.Errorf("reader sees %+v, %v", rows, err)
	}
	var b strings.Builder
	for _, name := range maps.Dumpable() {
		if err := reader.Dump(&b, name, maps.Table); err != nil {
			t.Errorf("dump %s: %v", name, err)
		}
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}

	_, err = datapath.Open(datapath.Options{PinPath: pins})
	if !errors.Is(err, datapath.ErrLocked) {
		t.Errorf("second agent: %v, want ErrLocked", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	// The numbers outlive the agent.
	if reader, err = maps.Open(pins); err != nil {
		t.Fatal(err)
	}
	if rows, err := reader.Backends(); err != nil || rows[4].Name != "gpu4" {
		t.Errorf("after the end: %+v, %v", rows, err)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}

// TestPinsOfOlderVersions: after an upgrade nobody would remove them.
func TestPinsOfOlderVersions(t *testing.T) {
	pins := pinPath(t)
	if err := open(t, pins).Close(); err != nil {
		t.Fatal(err)
	}
	older := maps.Older(pins)
	old := older[len(older)-1]
	if err := os.Rename(maps.Dir(pins), old); err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(pins, "mine")
	if err := os.Mkdir(beside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := open(t, pins).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", old, err)
	}
	if _, err := os.Stat(beside); err != nil {
		t.Errorf("what is not ours: %v", err)
	}
}

// TestPredecessorsBackendsAreForgotten: their rows would stand beside ours, and
// their chunk gaps would be taken for those of the backends that have their numbers.
func TestPredecessorsBackendsAreForgotten(t *testing.T) {
	pins := pinPath(t)
	d := open(t, pins)
	if err := d.Maps().PutBackend(1, maps.Backend{Name: "gone"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open(t, pins)
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if rows, err := d.Maps().Backends(); err != nil || len(rows) != 0 {
		t.Errorf("rows %v, error %v", rows, err)
	}
	if _, ok, err := d.Maps().Latency(1); ok || err != nil {
		t.Errorf("chunk gaps are there: %v, error %v", ok, err)
	}
}

// What operators see with the tool that they have.
func TestBpftoolReadsBackends(t *testing.T) {
	bpftool, err := exec.LookPath("bpftool")
	if err != nil {
		if bpftool, err = exec.LookPath("/usr/sbin/bpftool"); err != nil {
			t.Skip("needs bpftool:", err)
		}
	}
	pins := pinPath(t)
	d := open(t, pins)
	defer d.Close()
	if err := d.Maps().PutBackend(4, maps.Backend{Name: "gpu4", Address: "10.0.0.4:8000", Queue: 7}); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bpftool, "map", "dump", "pinned", filepath.Join(maps.Dir(pins), "backends")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"name": "gpu4"`, `"address": "10.0.0.4:8000"`, `"queue": 7`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// Another layout is refused, and stays as it is.
func TestIncompatiblePins(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"another digest": func(dir string) error {
			m, err := ebpf.LoadPinnedMap(filepath.Join(dir, "meta"), nil)
			if err != nil {
				return err
			}
			defer m.Close()
			return m.Put(uint32(0), bpf.Meta{Version: bpf.Version, Digest: 1})
		},
		"no meta, and a name of somebody else": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "meta")), os.Mkdir(filepath.Join(dir, "mine"), 0o700))
		},
		"no meta, and no map under a name of ours": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "meta")),
				os.Remove(filepath.Join(dir, "flows")), os.Mkdir(filepath.Join(dir, "flows"), 0o700))
		},
		"no meta, and a program under a name of ours": func(dir string) error {
			if err := errors.Join(os.Remove(filepath.Join(dir, "meta")), os.Remove(filepath.Join(dir, "flows"))); err != nil {
				return err
			}
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
				Type: ebpf.SocketFilter, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
			})
			if err != nil {
				return err
			}
			defer p.Close()
			return p.Pin(filepath.Join(dir, "flows"))
		},
		"another size": func(dir string) error {
			if err := os.Remove(filepath.Join(dir, "arms")); err != nil {
				return err
			}
			m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
			if err != nil {
				return err
			}
			defer m.Close()
			return m.Pin(filepath.Join(dir, "arms"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			pins := pinPath(t)
			if err := open(t, pins).Close(); err != nil {
				t.Fatal(err)
			}
			dir := maps.Dir(pins)
			if err := spoil(dir); err != nil {
				t.Fatal(err)
			}
			before := list(t, dir)
			_, err := datapath.Open(datapath.Options{PinPath: pins})
			if !errors.Is(err, maps.ErrIncompatible) {
				t.Errorf("open: %v, want ErrIncompatible", err)
			}
			if after := list(t, dir); after != before {
				t.Errorf("pins were %s, are %s", before, after)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if err := open(t, pins).Close(); err != nil {
				t.Errorf("after the removal: %v", err)
			}
		})
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(entries)
}

func TestNotOnBPFFS(t *testing.T) {
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "a", "b")
	_, err := datapath.Open(datapath.Options{PinPath: dir})
	if !errors.Is(err, datapath.ErrNotBPFFS) {
		t.Errorf("got %v, want ErrNotBPFFS", err)
	}
	if datapath.Advice(err) == "" {
		t.Error("no advice")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
}

func TestNoCgroup(t *testing.T) {
	needRoot(t)
	for _, path := range []string{"/nonexistent", t.TempDir(), "/proc/self/stat"} {
		_, err := datapath.Open(datapath.Options{Cgroup: path})
		if !errors.Is(err, datapath.ErrNotCgroup2) || datapath.Advice(err) == "" {
			t.Errorf("%s: got %v, want ErrNotCgroup2 and advice", path, err)
		}
	}
}

// Nothing acts and nothing is attached after Close, and no descriptor is left.
func TestCloseLeavesNothing(t *testing.T) {
	needRoot(t)
	if err := open(t, "").Close(); err != nil { // what is made once for the process
		t.Fatal(err)
	}
	before := fds(t)
	for range 3 {
		if err := open(t, "").Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := datapath.Open(datapath.Options{PinPath: t.TempDir()}); err == nil {
			t.Fatal("opened on no bpffs")
		}
		if _, err := datapath.Open(datapath.Options{Cgroup: "/proc"}); err == nil {
			t.Fatal("attached to no cgroup")
		}
	}
	if after := fds(t); after != before {
		t.Errorf("%d descriptors, were %d", after, before)
	}
}

func fds(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestProbe(t *testing.T) {
	pins := pinPath(t)
	for _, c := range datapath.Probe(datapath.Options{PinPath: pins}) {
		t.Logf("%-12s %v %s", c.Name, c.OK, c.Detail)
		if !c.OK {
			t.Errorf("%s: %s (%s)", c.Name, c.Detail, c.Advice)
		}
	}
	bad := datapath.Probe(datapath.Options{PinPath: "/proc/tautline", Cgroup: "/proc"})
	failed := map[string]bool{}
	for _, c := range bad {
		if !c.OK {
			failed[c.Name] = true
		}
	}
	if !failed["pins"] || !failed["load"] {
		t.Errorf("probe of nonsense: %+v", bad)
	}
}
