package datapath

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNoCgroup2 says that no cgroup v2 hierarchy is mounted here.
var ErrNoCgroup2 = errors.New("no cgroup2 mount")

// ErrNotCgroup2 says that a path is no directory of a cgroup v2 hierarchy.
var ErrNotCgroup2 = errors.New("no cgroup v2 directory")

// checkCgroup looks at a path that was given. It returns ErrNotCgroup2, wrapped.
func checkCgroup(path string) error {
	var st unix.Statfs_t
	switch err := unix.Statfs(path, &st); {
	case err != nil:
		return fmt.Errorf("%w: %s: %v", ErrNotCgroup2, path, err)
	case st.Type != unix.CGROUP2_SUPER_MAGIC:
		return fmt.Errorf("%w: %s", ErrNotCgroup2, path)
	}
	return nil
}

// rootInode is the inode of the root of a cgroup v2 hierarchy; a subtree that a
// cgroup namespace shows as "/" has another.
const rootInode = 1

// FindCgroup returns the mount point of the cgroup v2 hierarchy, wherever that is:
// the true root when one is mounted, otherwise the first subtree. whole tells
// which: servers outside a subtree cannot be spliced. It returns ErrNoCgroup2,
// wrapped, when there is none.
func FindCgroup() (path string, whole bool, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false, fmt.Errorf("%w: %v", ErrNoCgroup2, err)
	}
	mounts, err := cgroupMounts(bytes.NewReader(b))
	if err != nil {
		return "", false, fmt.Errorf("%w: %v", ErrNoCgroup2, err)
	}
	return pickCgroup(mounts, func(path string) (uint64, error) {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		return st.Ino, err
	})
}

func pickCgroup(mounts []string, inode func(string) (uint64, error)) (path string, whole bool, err error) {
	for _, m := range mounts {
		ino, err := inode(m)
		if err != nil {
			continue
		}
		if ino == rootInode {
			return m, true, nil
		}
		if path == "" {
			path = m
		}
	}
	if path == "" {
		return "", false, ErrNoCgroup2
	}
	return path, false, nil
}

// cgroupMounts reads the mount points of type cgroup2 out of a mountinfo file.
func cgroupMounts(r io.Reader) ([]string, error) {
	var mounts []string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		// 36 35 98:0 /root /mount/point opts optional-fields... - type source opts
		before, after, ok := strings.Cut(sc.Text(), " - ")
		if !ok || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		if f := strings.Fields(before); len(f) >= 5 {
			mounts = append(mounts, unescape(f[4]))
		}
	}
	return mounts, sc.Err()
}

// unescape undoes mountinfo's octal escapes (\040 for a space).
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			n, ok := 0, true
			for _, c := range s[i+1 : i+4] {
				ok = ok && '0' <= c && c <= '7'
				n = n*8 + int(c-'0')
			}
			if ok && n < 256 {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
