package datapath

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// bpffsRoot is where a bpf file system is mounted by custom.
const bpffsRoot = "/sys/fs/bpf"

// MountBPFFS mounts a bpf file system at /sys/fs/bpf when pinPath lies below it
// and none is there yet, as systemd does at boot. It needs CAP_SYS_ADMIN, which
// the agent does without elsewhere: where it fails, Open says what to do.
func MountBPFFS(pinPath string) error {
	pinPath = filepath.Clean(pinPath)
	if pinPath != bpffsRoot && !strings.HasPrefix(pinPath, bpffsRoot+"/") {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(bpffsRoot, &st); err != nil {
		return fmt.Errorf("%s: %w", bpffsRoot, err)
	}
	if st.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", bpffsRoot, "bpf", 0, "mode=0700"); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount bpf at %s: %w", bpffsRoot, err)
	}
	return nil
}
