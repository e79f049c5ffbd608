package agent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/userspace/splice"
)

// Doctor checks, step by step, whether this machine can splice, and says what
// to do where it cannot. It uses maps of its own without pins, so a running
// agent is not disturbed, and leaves nothing behind.
func Doctor(ctx context.Context, cfg *config.Config) []splice.Check {
	checks := []splice.Check{kernelCheck()}
	checks = append(checks, capabilityChecks()...)
	checks = append(checks, cgroupCheck(cfg.Splice.Cgroup), pinCheck(cfg.Splice.PinPath))

	d, err := datapath.Open(datapath.Options{Cgroup: cfg.Splice.Cgroup})
	if err != nil {
		return append(checks, splice.Check{
			Name: "load and attach", Detail: err.Error(),
			Advice: "fix the checks above; where the kernel refuses the program, a newer kernel helps",
		})
	}
	checks = append(checks, splice.Check{Name: "load and attach", OK: true, Detail: "programs are accepted and attached"})
	p, err := spliceParams(cfg)
	if err == nil {
		checks = append(checks, splice.SelfTest(ctx, d.Maps(), p)...)
	} else {
		checks = append(checks, splice.Check{Name: "settings", Detail: err.Error(), Advice: "change splice.credit_bytes"})
	}
	if err := d.Close(); err != nil {
		checks = append(checks, splice.Check{Name: "clean-up", Detail: err.Error(), Advice: "please report this"})
	}
	return checks
}

func kernelCheck() splice.Check {
	c := splice.Check{Name: "kernel", Advice: "use Linux 6.1.148, 6.6, 6.12.42 or later"}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		c.Detail = err.Error()
		return c
	}
	c.Detail = unix.ByteSliceToString(u.Release[:])
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		c.Detail += ", without BTF"
		c.Advice = "use a kernel built with CONFIG_DEBUG_INFO_BTF"
		return c
	}
	c.OK, c.Advice = true, ""
	return c
}

func capabilityChecks() []splice.Check {
	missing, err := datapath.Missing()
	if err != nil {
		return []splice.Check{{Name: "capabilities", Detail: err.Error(), Advice: "mount /proc"}}
	}
	lacks := map[string]bool{}
	for _, c := range missing {
		lacks[c.Name] = true
	}
	var checks []splice.Check
	for _, c := range datapath.Capabilities() {
		check := splice.Check{Name: c.Name, OK: !lacks[c.Name], Detail: "to " + c.For}
		if !check.OK {
			check.Advice = "run as root, or add " + c.Name + " to the container's or unit's capabilities"
		}
		checks = append(checks, check)
	}
	return checks
}

func cgroupCheck(configured string) splice.Check {
	c := splice.Check{Name: "cgroup2"}
	path, whole := configured, true
	if path == "" {
		var err error
		if path, whole, err = datapath.FindCgroup(); err != nil {
			c.Detail, c.Advice = err.Error(), "mount the host's cgroup2 root into the container, or set splice.cgroup"
			return c
		}
	}
	c.OK, c.Detail = true, path
	if !whole {
		c.Detail += ", a subtree only: model servers outside of it are not spliced"
		c.Advice = "mount the host's cgroup2 root into the container, or set splice.cgroup"
	}
	return c
}

func pinCheck(path string) splice.Check {
	c := splice.Check{Name: "pins"}
	switch err := maps.Verify(path); {
	case path == "":
		c.OK, c.Detail = true, "off: splice.pin_path is empty"
	case errors.Is(err, maps.ErrNotPinned):
		c.OK, c.Detail = true, "none yet at "+path
		var st unix.Statfs_t
		if err := unix.Statfs("/sys/fs/bpf", &st); err == nil && st.Type != unix.BPF_FS_MAGIC {
			c.Detail += "; no bpf file system is mounted at /sys/fs/bpf"
			c.Advice = "mount -t bpf bpf /sys/fs/bpf; an agent with CAP_SYS_ADMIN does it by itself"
		}
	case err != nil:
		c.Detail, c.Advice = err.Error(), fmt.Sprintf("stop the other version and remove %s, or set another splice.pin_path", maps.Dir(path))
	default:
		c.OK, c.Detail = true, "of this version at "+maps.Dir(path)
	}
	return c
}
