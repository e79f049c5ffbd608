package datapath

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrCapabilities says that capabilities are missing; the text names them.
var ErrCapabilities = errors.New("missing capabilities")

// Capability is one that the splice needs, and what for.
type Capability struct {
	Name string
	Bit  int
	For  string
}

// Capabilities lists all that the splice needs; nothing else is.
func Capabilities() []Capability {
	return []Capability{
		{"CAP_BPF", unix.CAP_BPF, "create maps, load programs"},
		{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, "attach to sockets, force send buffers"},
		{"CAP_PERFMON", unix.CAP_PERFMON, "read a socket's write position"},
	}
}

// missingCapabilities returns those of Capabilities that this thread lacks.
// CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON, as in the kernel.
func missingCapabilities() ([]Capability, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	has := func(bit int) bool { return data[bit/32].Effective&(1<<(bit%32)) != 0 }
	var missing []Capability
	for _, c := range Capabilities() {
		if has(c.Bit) || c.Bit != unix.CAP_NET_ADMIN && has(unix.CAP_SYS_ADMIN) {
			continue
		}
		missing = append(missing, c)
	}
	return missing, nil
}

func capabilityNames(cs []Capability) string {
	names := make([]string, len(cs))
	for i, c := range cs {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}
