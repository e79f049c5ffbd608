package bpf_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
)

func load(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := bpf.LoadTautline()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// Longer names are cut by the kernel without a word, and the pins then have other
// names than bpftool shows.
func TestNamesFitTheKernel(t *testing.T) {
	spec := load(t)
	for name := range spec.Maps {
		if len(name) > 15 {
			t.Errorf("map %s: %d characters, the kernel keeps 15", name, len(name))
		}
	}
	for name := range spec.Programs {
		if len(name) > 15 {
			t.Errorf("program %s: %d characters, the kernel keeps 15", name, len(name))
		}
	}
}

func TestPinnedMapsExist(t *testing.T) {
	spec := load(t)
	for _, name := range bpf.Pinned() {
		if spec.Maps[name] == nil {
			t.Errorf("%s: no such map", name)
		}
	}
}

func TestLicence(t *testing.T) {
	for name, p := range load(t).Programs {
		if p.License != "Dual BSD/GPL" {
			t.Errorf("%s: licence %q", name, p.License)
		}
	}
}

func TestDigest(t *testing.T) {
	want := bpf.Digest(load(t))
	if got := bpf.Digest(load(t)); got != want {
		t.Errorf("same spec: %x and %x", got, want)
	}
	for name, change := range map[string]func(*ebpf.CollectionSpec){
		"size":    func(s *ebpf.CollectionSpec) { s.Maps["flows"].ValueSize++ },
		"entries": func(s *ebpf.CollectionSpec) { s.Maps["arms"].MaxEntries-- },
		"type":    func(s *ebpf.CollectionSpec) { s.Maps["latency"].Type = ebpf.Hash },
		"gone":    func(s *ebpf.CollectionSpec) { delete(s.Maps, "backends") },
	} {
		spec := load(t)
		change(spec)
		if bpf.Digest(spec) == want {
			t.Errorf("%s: change not seen", name)
		}
	}
	spec := load(t)
	spec.Maps["claims"].MaxEntries++
	if bpf.Digest(spec) != want {
		t.Error("a map that is not pinned changed the digest")
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range bpf.ReasonCount {
		if s := r.String(); s == "" || s == "unknown" || seen[s] {
			t.Errorf("reason %d: name %q", r, s)
		} else {
			seen[s] = true
		}
	}
	if s := bpf.ReasonCount.String(); s != "unknown" {
		t.Errorf("outside: %q", s)
	}
	if bpf.ArmChunks.String() != "chunks" || bpf.ArmDeltas.String() != "deltas" ||
		bpf.ArmFirst.String() != "first" || (bpf.ArmFirst+1).String() != "unknown" {
		t.Errorf("modes: %s, %s, %s, %s", bpf.ArmChunks, bpf.ArmDeltas, bpf.ArmFirst, bpf.ArmFirst+1)
	}
	for s := bpf.FlowAnnounced; s <= bpf.FlowSpliced; s++ {
		if s.String() == "unknown" {
			t.Errorf("state %d has no name", s)
		}
	}
}

func TestText(t *testing.T) {
	var c [8]int8
	for in, want := range map[string]string{"": "", "gpu0": "gpu0", "12345678": "1234567", "é": "é"} {
		bpf.PutText(c[:], in)
		if got := bpf.Text(c[:]); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// One translation unit: a second object would give Go a second copy of each type.
// And a .c file without the constraint breaks every build with cgo.
func TestOneTranslationUnit(t *testing.T) {
	files, err := filepath.Glob("*.c")
	if err != nil || len(files) != 1 {
		t.Fatalf("C files: %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(b), "//go:build ignore\n") {
		t.Errorf("%s: does not begin with a build constraint", files[0])
	}
}
