package splice_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/test/testutil"
)

// The kernel gives the memory of an entry that is deleted to the next one at once. A
// program that is interrupted behind its look-up, while the agent closes its connection
// and arms another, then looks at what is the other's: whose client must not be given a
// byte of it, and whose flow must stay as it is.
func TestEntryBecomesAnothers(t *testing.T) {
	for name, tt := range map[string]struct {
		entry string          // of which map
		when  asm.BuiltinFunc // that the program calls at that moment
		armed bool            // the arm has not been taken yet
		agent bool            // gets the message; otherwise its own client does
	}{
		"flow, when it is spliced":          {entry: bpf.TautlineMapFlows, when: asm.FnSkcToTcpSock},
		"flow, when the verdict is given":   {entry: bpf.TautlineMapFlows, when: asm.FnMsgRedirectHash},
		"flow, when the arm is looked at":   {entry: bpf.TautlineMapFlows, when: asm.FnSkcToTcpSock, armed: true, agent: true},
		"arm, when the position is read":    {entry: bpf.TautlineMapArms, when: asm.FnSkcToTcpSock, armed: true},
		"flow, behind an arm that is taken": {entry: bpf.TautlineMapFlows, when: asm.FnMsgRedirectHash, armed: true},
	} {
		t.Run(name, func(t *testing.T) {
			var x *interposer
			w := newWireOn(t, testutil.MapSet(t, loadWith(t, func(spec *ebpf.CollectionSpec) {
				x = interpose(t, spec, bpf.TautlineProgOnMessage, tt.when, tt.entry)
			}).TautlineMaps))
			target, client := w.client()
			other, others := w.client()
			cookie := w.member(other)
			r := w.begin(target, client)
			if !tt.armed {
				w.move(w.server, client, chunk("first of the kernel"))
			}

			var key bpf.ConnKey
			var flow bpf.Flow
			if err := w.set.Flows(func(c maps.Conn, f bpf.Flow) bool { key, flow = c.Key(), f; return false }); err != nil {
				t.Fatal(err)
			}
			next := key
			next.AgentPort++
			flow.ClientCookie, flow.ServerCookie, flow.Credit = cookie, flow.ServerCookie+1, 1<<20
			if tt.armed && tt.entry == bpf.TautlineMapFlows {
				flow.State = bpf.FlowPassing
			}
			if tt.entry == bpf.TautlineMapFlows {
				x.replace(key, next, &flow)
			} else {
				var arm bpf.Arm
				if err := w.set.Arms(func(_ maps.Conn, a bpf.Arm) bool { arm = a; return false }); err != nil {
					t.Fatal(err)
				}
				arm.ClientCookie, arm.ServerCookie = cookie, arm.ServerCookie+1
				x.replace(key, next, &arm)
			}

			to := client
			if tt.agent {
				to = w.backend
			}
			if _, err := io.WriteString(w.server, chunk("its own")); err != nil {
				t.Fatal(err)
			}
			w.move(other, others, "the other's")
			w.expect(to, chunk("its own"))
			switch f, ok, err := w.set.Flow(next); {
			case tt.entry != bpf.TautlineMapFlows:
			case err != nil || !ok:
				t.Errorf("the other flow: %v, %v", ok, err)
			case f != flow:
				t.Errorf("the other flow was %+v, is %+v", flow, f)
			}
			r.Abort()
		})
	}
}

// member makes a client's connection a possible target, and returns its cookie.
func (w *wire) member(target net.Conn) (cookie uint64) {
	w.t.Helper()
	raw, err := target.(syscall.Conn).SyscallConn()
	if err != nil {
		w.t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) {
		if cookie, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE); err == nil {
			err = w.set.AddClient(cookie, fd)
		}
	}); e != nil || err != nil {
		w.t.Fatal(e, err)
	}
	return cookie
}

// An interposer is what a program calls in the place of a helper: once, when it is told
// to, it deletes an entry of a map and makes another one, and then calls the helper.
type interposer struct {
	t                  *testing.T
	once, keys, values *ebpf.Map
}

const interposed = "interposed"

// arguments says how many a helper takes.
var arguments = map[asm.BuiltinFunc]asm.Register{asm.FnSkcToTcpSock: 1, asm.FnMsgRedirectHash: 4}

// interpose changes a program of a spec, before it is loaded, where it calls a helper; the
// entries are of the map of that name.
func interpose(t *testing.T, spec *ebpf.CollectionSpec, program string, helper asm.BuiltinFunc, name string) *interposer {
	t.Helper()
	entries, p := spec.Maps[name], spec.Programs[program]
	array := func(size, n uint32) *ebpf.Map {
		t.Helper()
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: n})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	x := &interposer{t: t, once: array(4, 1), keys: array(entries.KeySize, 2), values: array(entries.ValueSize, 1)}
	n := 0
	for i := range p.Instructions {
		if ins := &p.Instructions[i]; ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == helper {
			*ins = asm.Call.Label("").WithMetadata(ins.Metadata).WithReference(interposed)
			n++
		}
	}
	if n == 0 {
		t.Fatalf("%s does not call %v", program, helper)
	}

	const index = -4 // on the stack
	element := func(m *ebpf.Map, i int64) asm.Instructions {
		return asm.Instructions{
			asm.StoreImm(asm.RFP, index, i, asm.Word),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, index),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "helper"),
		}
	}
	const other = -16
	var ins, back asm.Instructions
	for i := range arguments[helper] {
		ins = append(ins, asm.Mov.Reg(asm.R6+i, asm.R1+i))
		back = append(back, asm.Mov.Reg(asm.R1+i, asm.R6+i))
	}
	back[0] = back[0].WithSymbol("helper")
	ins = append(ins, element(x.once, 0)...)
	ins = append(ins,
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.JEq.Imm(asm.R1, 0, "helper"),
		asm.StoreImm(asm.R0, 0, 0, asm.Word))
	ins = append(ins, element(x.keys, 0)...)
	ins = append(ins,
		asm.Mov.Reg(asm.R2, asm.R0),
		asm.LoadMapPtr(asm.R1, 0).WithReference(name),
		asm.FnMapDeleteElem.Call())
	ins = append(ins, element(x.keys, 1)...)
	ins = append(ins, asm.StoreMem(asm.RFP, other, asm.R0, asm.DWord))
	ins = append(ins, element(x.values, 0)...)
	ins = append(ins,
		asm.Mov.Reg(asm.R3, asm.R0),
		asm.LoadMem(asm.R2, asm.RFP, other, asm.DWord),
		asm.LoadMapPtr(asm.R1, 0).WithReference(name),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call())
	ins = append(append(ins, back...), helper.Call(), asm.Return())
	// The kernel wants to know the types and lines of all functions or of none.
	ins[0] = btf.WithFuncMetadata(ins[0].WithSymbol(interposed).WithSource(p.Instructions[0].Source()), &btf.Func{
		Name: interposed, Linkage: btf.StaticFunc, Type: &btf.FuncProto{Return: &btf.Int{Name: "long", Size: 8}},
	})
	p.Instructions = append(p.Instructions, ins...)
	return x
}

// replace has it done the next time.
func (x *interposer) replace(old, next bpf.ConnKey, value any) {
	x.t.Helper()
	err := errors.Join(x.keys.Put(uint32(0), old), x.keys.Put(uint32(1), next), x.values.Put(uint32(0), value), x.once.Put(uint32(0), uint32(1)))
	if err != nil {
		x.t.Fatal(err)
	}
}
