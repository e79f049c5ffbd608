package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/maps"
)

// Check is one thing that the data path needs.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`           // what was seen
	Advice string `json:"advice,omitempty"` // what to do about it, when not OK
}

// Probe looks at what Open needs, each thing on its own, without changing anything
// that lasts: it loads and attaches the programs without pins and takes them away
// again. A running agent is not disturbed.
func Probe(o Options) []Check {
	checks := []Check{kernelCheck(), capabilityCheck(), btfCheck(), cgroupCheck(o)}
	if o.PinPath != "" {
		checks = append(checks, pinCheck(o.PinPath))
	}
	return append(checks, loadCheck(o))
}

func kernelCheck() Check {
	c := Check{Name: "kernel"}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		c.Detail = err.Error()
		return c
	}
	c.Detail = unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(c.Detail, "%d.%d", &major, &minor); err != nil {
		c.Detail = "unreadable release " + c.Detail
		return c
	}
	if c.OK = major > 6 || major == 6 && minor >= 1; !c.OK {
		c.Advice = "use Linux 6.1 or newer: bpf_loop, which the program needs, came with 5.17, and none before 6.1 is tested"
	}
	return c
}

func capabilityCheck() Check {
	c := Check{Name: "capabilities"}
	missing, err := missingCapabilities()
	if err != nil {
		c.Detail = err.Error()
		return c
	}
	if len(missing) > 0 {
		c.Detail = "missing " + capabilityNames(missing)
		c.Advice = "run as root, or add " + capabilityNames(missing) + " to the container or unit"
		return c
	}
	c.OK, c.Detail = true, "has "+capabilityNames(Capabilities())
	return c
}

func btfCheck() Check {
	const path = "/sys/kernel/btf/vmlinux"
	c := Check{Name: "btf", Detail: path}
	if _, err := os.Stat(path); err != nil {
		c.Detail = err.Error()
		c.Advice = "use a kernel built with CONFIG_DEBUG_INFO_BTF, and let the container see /sys"
		return c
	}
	c.OK = true
	return c
}

func cgroupCheck(o Options) Check {
	c := Check{Name: "cgroup"}
	path, whole := o.Cgroup, true
	if path == "" {
		var err error
		if path, whole, err = FindCgroup(); err != nil {
			c.Detail = err.Error()
			c.Advice = "mount cgroup v2, in a container the host's (hostPath /sys/fs/cgroup)"
			return c
		}
	} else if err := checkCgroup(path); err != nil {
		c.Detail, c.Advice = err.Error(), Advice(err)
		return c
	}
	c.Detail = path
	if !whole {
		c.Detail += " is only a part of the hierarchy"
		c.Advice = "let the container see the host's cgroup v2 root: servers outside of this part are not spliced"
		return c
	}
	c.OK = true
	return c
}

func pinCheck(pinPath string) Check {
	c := Check{Name: "pins", Detail: maps.Dir(pinPath)}
	if err := denied(onBPFFS(pinPath)); err != nil {
		c.Detail, c.Advice = err.Error(), Advice(err)
		return c
	}
	switch err := denied(maps.Verify(pinPath)); {
	case err == nil:
		c.Detail += " is compatible"
	case errors.Is(err, maps.ErrNotPinned):
		c.Detail += " is free"
	case errors.Is(err, maps.ErrHalfMade):
		c.Detail += " is half made: an agent is starting, or one died while it started; the next start makes it anew"
	case errors.Is(err, maps.ErrIncompatible):
		c.Detail, c.Advice = err.Error(), "stop the other version and remove "+maps.Dir(pinPath)+", or set another splice.pin_path"
		return c
	default:
		c.Detail, c.Advice = err.Error(), Advice(err)
		return c
	}
	c.OK = true
	return c
}

func loadCheck(o Options) Check {
	c := Check{Name: "load"}
	d, err := Open(Options{Cgroup: o.Cgroup})
	if err != nil {
		c.Detail, c.Advice = err.Error(), Advice(err)
		return c
	}
	if err := d.Close(); err != nil {
		c.Detail = err.Error()
		return c
	}
	c.OK, c.Detail = true, "the kernel takes the programs"
	return c
}

// Advice says what to do about an error of Open, empty when nothing is known.
func Advice(err error) string {
	switch {
	case errors.Is(err, ErrCapabilities):
		return "run as root, or add CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
	case errors.Is(err, ErrNoCgroup2):
		return "mount cgroup v2"
	case errors.Is(err, ErrNotCgroup2):
		return "set splice.cgroup to the root of the cgroup v2 hierarchy, or leave it out: it is found then"
	case errors.Is(err, ErrNotBPFFS):
		return "mount -t bpf bpf /sys/fs/bpf"
	case errors.Is(err, ErrPinDenied):
		return "as root, make a directory for the agent's user on the bpf file system (mkdir, chown; its parents must let the user pass) and set splice.pin_path to it"
	case errors.Is(err, ErrLocked):
		return "stop the other agent, or set another splice.pin_path"
	case errors.Is(err, maps.ErrIncompatible):
		return "stop the other version and remove its pins, or set another splice.pin_path"
	case errors.Is(err, ErrRejected):
		return "use a newer kernel"
	case errors.Is(err, unix.EPERM), errors.Is(err, fs.ErrPermission):
		return "a security module or seccomp profile forbids bpf(2): allow it"
	}
	return ""
}
