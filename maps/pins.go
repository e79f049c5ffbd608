package maps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
)

var (
	// ErrIncompatible says that the pins belong to another layout, or are not maps of
	// ours at all. They are left alone: stop the other version and remove its
	// directory, or use another pin path.
	ErrIncompatible = errors.New("incompatible pinned maps")
	// ErrNotPinned says that there are no pins at the path; no agent has pinned any.
	ErrNotPinned = errors.New("no pinned maps")
	// ErrHalfMade says that the pins at the path are those of a start that is not over
	// yet, or that died: the meta map, which is written when all are there, says
	// nothing. Whoever holds the lock of the pin path may take them away.
	ErrHalfMade = errors.New("half-made pinned maps")
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

// Verify compares the version and the digest in the meta pin with this program's.
// Other values are ErrIncompatible. No directory, or an empty one, is ErrNotPinned.
// No meta pin, or one that was never written, is ErrHalfMade where all that is there
// are maps with names of ours, else ErrIncompatible.
func Verify(pinPath string) error {
	dir := Dir(pinPath)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return fmt.Errorf("%w: %s", ErrNotPinned, dir)
	case err != nil:
		return fmt.Errorf("look for pins: %w", err)
	}
	meta, err := readMeta(dir)
	if err != nil {
		return err
	}
	if meta == (bpf.Meta{}) {
		return unfinished(dir, entries)
	}
	want, err := Meta()
	if err != nil {
		return err
	}
	if meta != want {
		return fmt.Errorf("%w: %s has version %d digest %016x, this program version %d digest %016x",
			ErrIncompatible, dir, meta.Version, meta.Digest, want.Version, want.Digest)
	}
	return nil
}

// readMeta reads the meta pin, zero where there is none.
func readMeta(dir string) (bpf.Meta, error) {
	path := filepath.Join(dir, bpf.TautlineMapMeta)
	m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bpf.Meta{}, nil
	case err != nil:
		return bpf.Meta{}, fmt.Errorf("open %s: %w", path, err)
	}
	var meta bpf.Meta
	err = m.Lookup(uint32(0), &meta)
	if err := errors.Join(err, m.Close()); err != nil {
		return bpf.Meta{}, fmt.Errorf("%w: read %s: %v", ErrIncompatible, path, err)
	}
	return meta, nil
}

// unfinished says what a directory is whose meta map says nothing.
func unfinished(dir string, entries []os.DirEntry) error {
	names := bpf.Pinned()
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !slices.Contains(names, e.Name()) || !e.Type().IsRegular() {
			return fmt.Errorf("%w: %s is not tautline's, and %s has no meta map that says what it is", ErrIncompatible, path, dir)
		}
		m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
		switch {
		case errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("open %s: %w", path, err)
		case err != nil:
			return fmt.Errorf("%w: %s is no map: %v", ErrIncompatible, path, err)
		}
		if err := m.Close(); err != nil {
			return fmt.Errorf("close %s: %w", path, err)
		}
	}
	return fmt.Errorf("%w: %s: an agent is starting, or one died while it started", ErrHalfMade, dir)
}

// Meta returns this program's row of the meta map.
func Meta() (bpf.Meta, error) {
	spec, err := bpf.LoadTautline()
	if err != nil {
		return bpf.Meta{}, fmt.Errorf("read embedded object: %w", err)
	}
	return bpf.Meta{Version: bpf.Version, Digest: bpf.Digest(spec)}, nil
}
