package testutil

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// BPFFS mounts a bpf file system for the test and returns its path. It skips the
// test where it cannot; it fails it when something is still open there at its end.
func BPFFS(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts a bpf file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Skipf("no bpf file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("a pin or file is still open: %v", err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}
