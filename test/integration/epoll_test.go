package integration

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A meter sees each return of epoll_pwait in a process, by two small programs on the
// kernel's tracepoints of system calls. Go's runtime waits for all sockets by it.
type meter struct{ returns *ebpf.Map }

// polls is how often epoll_pwait has returned.
type polls struct {
	network uint64 // with a socket that is ready
	self    uint64 // with nothing but the event by which the runtime wakes its own poller
	empty   uint64 // with nothing: a timer, or just a look
}

func (p polls) minus(o polls) polls {
	return polls{p.network - o.network, p.self - o.self, p.empty - o.empty}
}

// secondArgument is where the second argument of a system call lies in struct pt_regs.
var secondArgument = map[string]int32{"amd64": 13 * 8, "arm64": 1 * 8}[runtime.GOARCH]

// newMeter begins to count what a process does, by its number in the first namespace.
func newMeter(t *testing.T, pid int) *meter {
	t.Helper()
	if secondArgument == 0 {
		t.Skipf("the registers of %s are not known here", runtime.GOARCH)
	}
	calls := newMap(t, &ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1024}) // by thread: where the events go
	m := &meter{newMap(t, &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 3})}

	const thread, value, slot = -8, -16, -20 // on the stack
	m.attach(t, "sys_enter", asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnGetCurrentPidTgid.Call(),
		asm.StoreMem(asm.RFP, thread, asm.R0, asm.DWord),
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(pid), "out"),
		asm.LoadMem(asm.R2, asm.R6, 8, asm.DWord), // the call's number
		asm.JNE.Imm(asm.R2, unix.SYS_EPOLL_PWAIT, "out"),
		asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord),
		asm.Add.Imm(asm.R3, secondArgument),
		asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, value),
		asm.Mov.Imm(asm.R2, 8),
		asm.FnProbeReadKernel.Call(),
		asm.LoadMapPtr(asm.R1, calls.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, thread),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, value),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	})
	exit := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnGetCurrentPidTgid.Call(),
		asm.StoreMem(asm.RFP, thread, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, calls.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, thread),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R7, asm.R0, 0, asm.DWord), // the events
		asm.LoadMapPtr(asm.R1, calls.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, thread),
		asm.FnMapDeleteElem.Call(),
		asm.LoadMem(asm.R8, asm.R6, 8, asm.DWord), // how many, or an error
		asm.StoreImm(asm.RFP, slot, 2, asm.Word),
		asm.JSLE.Imm(asm.R8, 0, "count"),
		asm.StoreImm(asm.RFP, slot, 1, asm.Word),
	}
	for i := range int32(16) {
		exit = append(exit,
			asm.JSLE.Imm(asm.R8, i, "count"),
			asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, value),
			asm.Mov.Imm(asm.R2, 4),
			asm.Mov.Reg(asm.R3, asm.R7), asm.Add.Imm(asm.R3, i*int32(unsafe.Sizeof(unix.EpollEvent{}))),
			asm.FnProbeReadUser.Call(),
			asm.LoadMem(asm.R1, asm.RFP, value, asm.Word),
			// The runtime asks to write to each socket too, and can; but not to its own.
			asm.JNE.Imm(asm.R1, unix.EPOLLIN, "socket"),
		)
	}
	exit = append(exit,
		asm.Ja.Label("count"),
		asm.StoreImm(asm.RFP, slot, 0, asm.Word).WithSymbol("socket"),
		asm.LoadMapPtr(asm.R1, m.returns.FD()).WithSymbol("count"),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, slot),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
	m.attach(t, "sys_exit", exit)
	return m
}

func newMap(t *testing.T, spec *ebpf.MapSpec) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func (m *meter) attach(t *testing.T, tracepoint string, ins asm.Instructions) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: ins})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: p})
	if err != nil {
		t.Skipf("the kernel has no tracepoint %s: %v", tracepoint, err)
	}
	t.Cleanup(func() { l.Close() })
}

// read returns what was counted so far.
func (m *meter) read(t *testing.T) (p polls) {
	t.Helper()
	for i, to := range []*uint64{&p.network, &p.self, &p.empty} {
		if err := m.returns.Lookup(uint32(i), to); err != nil {
			t.Fatal(err)
		}
	}
	return p
}
