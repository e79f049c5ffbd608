package maps

import (
	"structs"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// element is the part of the kernel's union bpf_attr that names one entry of a map.
// Like the BPF object it is laid out for 64-bit machines only.
type element struct {
	_     structs.HostLayout
	fd    uint32
	_     uint32
	key   unsafe.Pointer
	value unsafe.Pointer // nil for a deletion
	flags uint64
}

const _ = uint(unsafe.Sizeof(uintptr(0)) - 8) // does not compile where pointers are shorter

// do makes a bpf(2) call on one entry without telling Go's scheduler. These calls are
// made at the ends of each spliced response and never block; see splice's quick for
// what telling it costs. key and value have the map's sizes.
func do[K, V any](cmd uintptr, m *ebpf.Map, key *K, value *V) error {
	e := element{fd: uint32(m.FD()), key: unsafe.Pointer(key), value: unsafe.Pointer(value)}
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, cmd, uintptr(unsafe.Pointer(&e)), unsafe.Sizeof(e))
	if errno != 0 {
		return errno
	}
	return nil
}
