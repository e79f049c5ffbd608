// Package maps is the typed, versioned view of the kernel side's maps: one place
// for their paths, their layout and what each of them means.
//
// A Set is either handed out by the datapath (which created the maps) or opened
// from the pins by a reader such as "tautline maps", which needs no agent.
package maps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
)

// Set is the maps of one data path. Its methods are safe for concurrent use.
type Set struct {
	m      bpf.TautlineMaps
	pinned bool // opened from the pins: the maps are the Set's to close
	firsts ring
	usages ring

	asking sync.RWMutex // held while a map is asked about a connection
	closed bool
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
// the Set. It returns ErrNotPinned, ErrHalfMade or ErrIncompatible, wrapped, where
// that is so.
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

// Close closes what the Set has opened itself. Connections may outlive it: what is asked
// on their behalf returns os.ErrClosed, wrapped, from then on.
func (s *Set) Close() error {
	s.asking.Lock()
	s.closed = true
	s.asking.Unlock()
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

// hold keeps the maps from being closed until asking is unlocked for reading.
func (s *Set) hold() error {
	s.asking.RLock()
	if s.closed {
		s.asking.RUnlock()
		return os.ErrClosed
	}
	return nil
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
