package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/test/testutil"
)

// TestMapsThatCannotBeRead: that there are none, or only half of them, is an answer.
func TestMapsThatCannotBeRead(t *testing.T) {
	pins := filepath.Join(testutil.BPFFS(t), "tautline")
	check := func(name, want string) {
		t.Helper()
		for _, args := range [][]string{{"maps"}, {"maps", "dump", "backends"}} {
			code, _, errs := exec(t, "", append(args, "--pin-path", pins)...)
			if code != exitUnhealthy || !strings.Contains(errs, want) {
				t.Errorf("%s, %q: exit %d, %q", name, args, code, errs)
			}
		}
	}
	check("nothing there", "no pinned maps")
	spec, err := bpf.LoadTautline()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(maps.Dir(pins), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(spec.Maps[bpf.TautlineMapBackends])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Pin(filepath.Join(maps.Dir(pins), bpf.TautlineMapBackends)), m.Close()); err != nil {
		t.Fatal(err)
	}
	check("half made", "died while it started")
}
