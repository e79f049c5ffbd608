// Package maps is the typed, versioned view of the kernel side's maps: one place
// for their paths, their layout and what each of them means.
//
// A Set is either handed out by the datapath (which created the maps) or opened
// from the pins by a reader such as "tautline maps", which needs no agent.
package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
)

var (
	// ErrIncompatible says that the pins belong to another layout. They are left alone:
	// stop the other version and remove its directory, or use another pin path.
	ErrIncompatible = errors.New("incompatible pinned maps")
	// ErrNotPinned says that there are no pins at the path; no agent has pinned any.
	ErrNotPinned = errors.New("no pinned maps")
)

// Dir returns the directory of this version's pins below a pin path.
func Dir(pinPath string) string {
	return filepath.Join(pinPath, fmt.Sprintf("v%d", bpf.Version))
}

// Older returns the directories that earlier versions' pins would have.
func Older(pinPath string) []string {
	var dirs []string
	for v := 1; v < bpf.Version; v++ {
		dirs = append(dirs, filepath.Join(pinPath, fmt.Sprintf("v%d", v)))
	}
	return dirs
}

// Set is the maps of one data path. Its methods are safe for concurrent use.
type Set struct {
	m      bpf.TautlineMaps
	pinned bool // opened from the pins: the maps are the Set's to close
	firsts ring
	usages ring
}

// New makes a Set of loaded maps. The caller keeps owning them, and closes the Set
// before them. Maps that are not pinned may be nil: without Announced Announce
// fails, without FirstTokens or Usages there are none to tell of.
func New(m bpf.TautlineMaps) (*Set, error) {
	s := &Set{m: m}
	if err := s.firsts.open(m.FirstTokens); err != nil {
		return nil, err
	}
	if err := s.usages.open(m.Usages); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Open opens the pins below pinPath for reading, after Verify. The caller closes
// the Set. It returns ErrNotPinned or ErrIncompatible, wrapped, where that is so.
func Open(pinPath string) (*Set, error) {
	dir := Dir(pinPath)
	if err := Verify(pinPath); err != nil {
		return nil, err
	}
	s := Set{pinned: true}
	for _, name := range bpf.Pinned() {
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), &ebpf.LoadPinOptions{ReadOnly: true})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open %s: %w", filepath.Join(dir, name), err), s.Close())
		}
		*s.field(name) = m
	}
	return &s, nil
}

// Verify compares the version and the digest in the meta pin with this program's.
// No directory is ErrNotPinned; no meta pin or other values are ErrIncompatible. A
// meta map that was never written (its agent died at birth) is accepted.
func Verify(pinPath string) error {
	dir := Dir(pinPath)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotPinned, dir)
	} else if err != nil {
		return fmt.Errorf("look for pins: %w", err)
	}
	path := filepath.Join(dir, bpf.TautlineMapMeta)
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, fs.ErrNotExist) {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
			return fmt.Errorf("%w: %s", ErrNotPinned, dir)
		}
		return fmt.Errorf("%w: %s has no meta map", ErrIncompatible, dir)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	var meta bpf.Meta
	err = m.Lookup(uint32(0), &meta)
	if err := errors.Join(err, m.Close()); err != nil {
		return fmt.Errorf("%w: read %s: %v", ErrIncompatible, path, err)
	}
	want, err := Meta()
	if err != nil {
		return err
	}
	if meta != want && meta != (bpf.Meta{}) {
		return fmt.Errorf("%w: %s has version %d digest %016x, this program version %d digest %016x",
			ErrIncompatible, dir, meta.Version, meta.Digest, want.Version, want.Digest)
	}
	return nil
}

// Meta returns this program's row of the meta map.
func Meta() (bpf.Meta, error) {
	spec, err := bpf.LoadTautline()
	if err != nil {
		return bpf.Meta{}, fmt.Errorf("read embedded object: %w", err)
	}
	return bpf.Meta{Version: bpf.Version, Digest: bpf.Digest(spec)}, nil
}

// Close closes what the Set has opened itself.
func (s *Set) Close() error {
	errs := []error{s.firsts.close(), s.usages.close()}
	if !s.pinned {
		return errors.Join(errs...)
	}
	for _, name := range bpf.Pinned() {
		if f := s.field(name); *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}

// field returns where the map of that name is kept, nil for an unknown name.
func (s *Set) field(name string) **ebpf.Map {
	switch name {
	case bpf.TautlineMapBackends:
		return &s.m.Backends
	case bpf.TautlineMapFlows:
		return &s.m.Flows
	case bpf.TautlineMapArms:
		return &s.m.Arms
	case bpf.TautlineMapServerSocks:
		return &s.m.ServerSocks
	case bpf.TautlineMapClientSocks:
		return &s.m.ClientSocks
	case bpf.TautlineMapLatency:
		return &s.m.Latency
	case bpf.TautlineMapCounters:
		return &s.m.Counters
	case bpf.TautlineMapMeta:
		return &s.m.Meta
	}
	return nil
}
