package datapath

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const mountinfo = `24 30 0:22 / /proc rw,nosuid - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw
42 31 0:38 /../.. /run/host\040root/cgroup ro - cgroup2 none rw
43 31 0:39 / /cgroup2 rw - ext4 /dev/cgroup2 rw
garbage
`

func TestCgroupMounts(t *testing.T) {
	got, err := cgroupMounts(strings.NewReader(mountinfo))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/sys/fs/cgroup/unified", "/run/host root/cgroup"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The root of the hierarchy is taken wherever it is mounted, before a subtree that a
// cgroup namespace shows as one.
func TestPickCgroup(t *testing.T) {
	inodes := map[string]uint64{"/part": 4711, "/other": 42, "/root": rootInode}
	inode := func(p string) (uint64, error) {
		if ino, ok := inodes[p]; ok {
			return ino, nil
		}
		return 0, errors.New("gone")
	}
	for _, tt := range []struct {
		mounts []string
		path   string
		whole  bool
		err    error
	}{
		{[]string{"/part", "/root"}, "/root", true, nil},
		{[]string{"/gone", "/part", "/other"}, "/part", false, nil},
		{[]string{"/gone"}, "", false, ErrNoCgroup2},
		{nil, "", false, ErrNoCgroup2},
	} {
		path, whole, err := pickCgroup(tt.mounts, inode)
		if path != tt.path || whole != tt.whole || !errors.Is(err, tt.err) {
			t.Errorf("%q: %q, %v, %v", tt.mounts, path, whole, err)
		}
	}
}
