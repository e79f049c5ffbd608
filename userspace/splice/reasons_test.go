package splice_test

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/splice"
)

// Each reason is provoked by a test that looks at its counter.
func TestEveryReasonIsProvoked(t *testing.T) {
	kernel := map[bpf.Reason]func(*testing.T){
		bpf.ClaimTaken:       TestStreamIsSpliced,
		bpf.ClaimMismatch:    TestForeignSameAddresses,
		bpf.ClaimBusy:        TestOtherSockmapOwner,
		bpf.ClaimUnsupported: TestMultipathServerIsNotTaken,
		bpf.ClaimFull:        TestFullTables,
		// Of the kernel's errors only ENOENT is left for it: the program of the map
		// loses its last reference while the kernel looks at it. No test can hit that.
		bpf.ClaimFailed:  nil,
		bpf.ArmTaken:     TestVerdicts,
		bpf.ArmMissed:    TestArmMissesBytesUnderWay,
		bpf.FirstLost:    TestFirstTokensAreLost,
		bpf.Redirected:   TestVerdicts,
		bpf.PassIdle:     TestVerdicts,
		bpf.PassLast:     TestVerdicts,
		bpf.PassCredit:   TestSlowClient,
		bpf.PassWindow:   TestVerdicts,
		bpf.PassPartial:  TestVerdicts,
		bpf.PassFraming:  TestVerdicts,
		bpf.PassEvent:    TestEventsThatMustPassTheAgent,
		bpf.PassUsage:    TestUsagesAreFull,
		bpf.PassTarget:   TestTargetIsGone,
		bpf.PassStale:    TestFlowIsGone,
		bpf.PassBypassed: TestBytesPastTheProgram,
	}
	for r := range bpf.ReasonCount {
		if _, ok := kernel[r]; !ok {
			t.Errorf("no test provokes %s", r)
		}
	}
	agent := map[splice.Reason]func(*testing.T){
		splice.Spliced:         TestStreamIsSpliced,
		splice.Off:             TestOff,
		splice.ClientTLS:       TestClientsThatAreNotSpliced,
		splice.ClientProtocol:  TestClientsThatAreNotSpliced,
		splice.Rewritten:       TestEventsThatMustPassTheAgent,
		splice.BackendFraming:  TestReuseBetweenKinds,
		splice.ClientFraming:   TestClientsBodyHasALength,
		splice.Unclaimed:       TestUnclaimedServer,
		splice.ClientGone:      TestClientLeavesBeforeTheArm,
		splice.ClientBusy:      TestAgentBehindAgent,
		splice.SendBuffer:      TestSendBufferCannotBeForced,
		splice.TableFull:       TestFullTables,
		splice.Untracked:       TestAnsweredBeforeItWasAsked,
		splice.NeverArmed:      TestUnusualFraming,
		splice.NeverRedirected: TestUnusualFraming,
	}
	for r := splice.Spliced; r.String() != "unknown"; r++ {
		if agent[r] == nil {
			t.Errorf("no test provokes %s", r)
		}
	}
}

// What the program makes of one message behind an arm, and who gets it.
func TestVerdicts(t *testing.T) {
	for name, tt := range map[string]struct {
		message string
		want    bpf.Reason
	}{
		"whole chunk":           {chunk("second"), bpf.Redirected},
		"whole chunks":          {chunk("second") + chunk("third"), bpf.Redirected},
		"terminator":            {last, bpf.PassLast},
		"chunk and terminator":  {chunk("second") + last, bpf.PassLast},
		"beyond the window":     {chunk(strings.Repeat("x", 40_000)), bpf.PassWindow},
		"half a chunk":          {"6\r\nsec", bpf.PassPartial},
		"chunk and a half":      {chunk("second") + "5\r\nth", bpf.PassPartial},
		"chunk with extension":  {"6;a=b\r\nsecond\r\n", bpf.PassFraming},
		"size of many digits":   {"000006\r\nsecond\r\n", bpf.PassFraming},
		"no chunk":              {"this is not a chunk\r\n", bpf.PassFraming},
		"longer than its chunk": {"3\r\nsecond\r\n", bpf.PassFraming},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			target, client := w.client()
			r := w.admit(target, client)
			idle := w.counters()[bpf.PassIdle]
			if want := (bpf.Counter{Events: 1, Bytes: uint64(len(head + chunk("first")))}); idle != want {
				t.Errorf("before the arm %+v passed, want %+v", idle, want)
			}
			r.Flushed(5)
			before := w.counters()
			to := w.backend
			if tt.want == bpf.Redirected {
				to = client
			}
			w.move(w.server, to, tt.message)
			for reason, c := range w.counters() {
				c.Events -= before[reason].Events
				c.Bytes -= before[reason].Bytes
				want := bpf.Counter{}
				switch bpf.Reason(reason) {
				case bpf.ArmTaken:
					want.Events = 1
				case tt.want:
					want = bpf.Counter{Events: 1, Bytes: uint64(len(tt.message))}
				}
				if c != want {
					t.Errorf("%s: counted %+v, want %+v", bpf.Reason(reason), c, want)
				}
			}
			r.Abort()
		})
	}
}

// The client's socket goes while the kernel holds the stream and the agent has not
// come to see it: the server notices nothing, the agent gets the bytes.
func TestTargetIsGone(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r := w.begin(target, client)
	w.move(w.server, client, chunk("second"))
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
	w.move(w.server, w.backend, chunk("third"))
	if n := w.counters()[bpf.PassTarget].Events; n != 1 {
		t.Errorf("%d messages had no target, want 1", n)
	}
	r.Abort()
}

// The agent has closed its end: the server's next message goes nowhere but there.
func TestFlowIsGone(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r := w.begin(target, client)
	w.move(w.server, client, chunk("second"))
	r.Abort()
	if _, err := w.server.Write([]byte(chunk("third"))); err != nil {
		t.Fatal(err)
	}
	if c := w.counters()[bpf.PassStale]; c.Events != 1 || c.Bytes != uint64(len(chunk("third"))) {
		t.Errorf("%+v passed without a flow", c)
	}
	if n := w.redirected(); n != 1 {
		t.Errorf("%d messages were redirected, want 1", n)
	}
}

// Another program of the node puts bytes into the server's socket, past ours and in
// the middle of a splice. The server's next message does not overtake them on their
// way through the agent, and the stream goes on.
func TestBytesPastTheProgram(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r := w.begin(target, client)
	w.move(w.server, client, chunk("second"))

	foreign, _ := w.pair(false, func(addr string) (net.Conn, error) { return net.Dial("tcp4", addr) })
	redirectAll(t, foreign, w.server)
	if _, err := foreign.Write([]byte(chunk("past"))); err != nil {
		t.Fatal(err)
	}
	if _, err := w.server.Write([]byte(chunk("third"))); err != nil {
		t.Fatal(err)
	}
	w.expect(w.backend, chunk("past")+chunk("third"))
	if c := w.counters()[bpf.PassBypassed]; c.Events != 1 || c.Bytes != uint64(len(chunk("third"))) {
		t.Errorf("%+v passed behind bytes of another, want one message", c)
	}
	w.move(target, client, chunk("past")+chunk("third"))
	r.Flushed(5 + 4 + 5)
	w.move(w.server, client, chunk("fourth"))
	w.relay(target, client, last)
	w.outcome(r, splice.Spliced)
}

// redirectAll makes everything that is sent on one socket go out by another.
func redirectAll(t *testing.T, from, to net.Conn) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// Two maps: the one that has the program also would run it for its members.
	var socks [2]*ebpf.Map
	for i, c := range []net.Conn{from, to} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.SockMap, KeySize: 4, ValueSize: 8, MaxEntries: 1})
		check(err)
		t.Cleanup(func() { m.Close() })
		socks[i] = m
		if i == 0 {
			continue
		}
		raw, err := c.(syscall.Conn).SyscallConn()
		check(err)
		check(raw.Control(func(fd uintptr) { err = m.Put(uint32(0), uint64(fd)) }))
		check(err)
	}
	all, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SkMsg, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapPtr(asm.R2, socks[1].FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMsgRedirectMap.Call(),
		asm.Return(),
	}})
	check(err)
	t.Cleanup(func() { all.Close() })
	check(link.RawAttachProgram(link.RawAttachProgramOptions{Target: socks[0].FD(), Program: all, Attach: ebpf.AttachSkMsgVerdict}))
	raw, err := from.(syscall.Conn).SyscallConn()
	check(err)
	check(raw.Control(func(fd uintptr) { err = socks[0].Put(uint32(0), uint64(fd)) }))
	check(err)
}

// A client that has shut down its sending side before the agent arms, or is gone
// altogether, cannot be a target; the one gets its bytes all the same.
func TestClientLeavesBeforeTheArm(t *testing.T) {
	for name, leave := range map[string]func(*net.TCPConn) error{
		"half-close": (*net.TCPConn).CloseWrite,
		"reset":      func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			target, client := w.client()
			r := w.admit(target, client)
			if err := leave(client.(*net.TCPConn)); err != nil {
				t.Fatal(err)
			}
			if n, err := target.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Fatal(n, err)
			}
			r.Flushed(5)
			w.move(w.server, w.backend, chunk("second")+last)
			if name == "half-close" {
				w.move(target, client, chunk("second")+last)
			}
			w.outcome(r, splice.ClientGone)
		})
	}
}

// A client that gets a body of known length cannot be given chunks.
func TestClientsBodyHasALength(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	w.move(w.backend, w.server, askWire)
	w.move(w.server, w.backend, head+chunk("first"))
	r := w.s.Begin(target, w.backend, splice.ResponseInfo{ClientHTTP11: true, BackendChunked: true})
	w.move(target, client, "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nfirst")
	r.Flushed(5)
	w.move(w.server, w.backend, chunk("second")+last)
	w.move(target, client, "second")
	w.outcome(r, splice.ClientFraming)
}

// A server answers while the agent still writes the request: where that answer
// begins among the bytes cannot be told, so the response is relayed.
func TestAnsweredBeforeItWasAsked(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r := w.admit(target, client)
	w.move(w.backend, w.server, "the rest of the request")
	w.relay(target, client, chunk("second"))
	r.Flushed(11)
	w.relay(target, client, chunk("third"))
	w.relay(target, client, last)
	w.outcome(r, splice.Untracked)
}

// Without the right to enlarge the client's send buffer a slow client would make the
// server see EAGAIN: then nothing is spliced.
func TestSendBufferCannotBeForced(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r := w.admit(target, client)
	withoutNetAdmin(t, func() { r.Flushed(5) })
	w.relay(target, client, chunk("second"))
	w.relay(target, client, last)
	w.outcome(r, splice.SendBuffer)
}

// withoutNetAdmin runs f on a thread that lacks CAP_NET_ADMIN for that time.
func withoutNetAdmin(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had [2]unix.CapUserData // by word of the set
	if err := unix.Capget(&header, &had[0]); err != nil {
		t.Fatal(err)
	}
	less := had
	less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	if err := unix.Capset(&header, &less[0]); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.Capset(&header, &had[0]); err != nil {
		t.Fatal(err)
	}
}

// Tables that are full cost the splice of those who come later, and nothing else.
func TestFullTables(t *testing.T) {
	for table, want := range map[string]struct {
		claim bpf.Reason // of the second connection
		why   splice.Reason
	}{
		bpf.TautlineMapFlows:       {bpf.ClaimFull, splice.Unclaimed},
		bpf.TautlineMapServerSocks: {bpf.ClaimFull, splice.Unclaimed},
		bpf.TautlineMapClientSocks: {bpf.ClaimTaken, splice.TableFull},
		bpf.TautlineMapArms:        {bpf.ClaimTaken, splice.TableFull},
	} {
		t.Run(table, func(t *testing.T) {
			w := newWireOn(t, testutil.MapSet(t, loadWith(t, func(spec *ebpf.CollectionSpec) { spec.Maps[table].MaxEntries = 1 }).TautlineMaps))
			target, client := w.client()
			first := w.begin(target, client) // and leaves its arm where it is
			before := w.counters()
			w.dial()
			if n := w.counters()[want.claim].Events - before[want.claim].Events; n != 1 {
				t.Errorf("%d connections are %s, want 1", n, want.claim)
			}
			target, client = w.client()
			r := w.begin(target, client)
			w.relay(target, client, chunk("second"))
			w.relay(target, client, last)
			w.outcome(r, want.why)
			first.Abort()
		})
	}
}

// loadWith loads and attaches the kernel side, changed, without pins.
func loadWith(t *testing.T, change func(*ebpf.CollectionSpec)) *bpf.TautlineObjects {
	t.Helper()
	needRoot(t)
	spec, err := bpf.LoadTautline()
	if err != nil {
		t.Fatal(err)
	}
	change(spec)
	var objs bpf.TautlineObjects
	if err := spec.LoadAndAssign(&objs, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objs.Close() })
	for m, p := range map[*ebpf.Map]*ebpf.Program{objs.ServerSocks: objs.OnMessage, objs.TrialSocks: objs.OnTrial} {
		if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: m.FD(), Program: p, Attach: ebpf.AttachSkMsgVerdict}); err != nil {
			t.Fatal(err)
		}
	}
	attachRoot(t, objs.OnSocket)
	return &objs
}

// attachRoot has a program see the sockets of the whole machine for the test.
func attachRoot(t *testing.T, p *ebpf.Program) {
	t.Helper()
	root, _, err := datapath.FindCgroup()
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: root, Attach: ebpf.AttachCGroupSockOps, Program: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// A server's end that speaks multipath TCP cannot be taken, and goes on. The agent
// dials no such connection; so here another program announces one.
func TestMultipathServerIsNotTaken(t *testing.T) {
	objs := loadWith(t, func(*ebpf.CollectionSpec) {})
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	ln, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	announceAll(t, objs.Flows, ln.Addr().(*net.TCPAddr).Port)
	var d net.Dialer
	d.SetMultipathTCP(true)
	c, err := d.DialContext(t.Context(), "tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if ok, err := c.(*net.TCPConn).MultipathTCP(); err != nil || !ok {
		t.Skipf("the kernel does not speak multipath TCP: %v", err)
	}
	w := &wire{t: t, set: testutil.MapSet(t, objs.TautlineMaps)}
	w.move(a, c, "hello")
	counts := w.counters()
	if counts[bpf.ClaimUnsupported].Events != 1 || counts[bpf.ClaimTaken].Events != 0 {
		t.Errorf("%d sockets are unsupported, %d taken, want 1 and 0",
			counts[bpf.ClaimUnsupported].Events, counts[bpf.ClaimTaken].Events)
	}
	if live, err := w.set.Live(); err != nil || live[bpf.FlowRefused] != 1 {
		t.Errorf("flows %v, %v", live, err)
	}
}

// announceAll makes the flow of every IPv4 connection on loopback to a port, as the
// program does for those that the agent announced.
func announceAll(t *testing.T, flows *ebpf.Map, port int) {
	t.Helper()
	// struct bpf_sock_ops
	const op, remotePort, localPort, rcvNxt, sndNxt, activeEstablished = 0, 64, 68, 100, 104, 4
	const (
		key  = -int16(unsafe.Sizeof(bpf.ConnKey{}))
		flow = key - 4 - int16(unsafe.Sizeof(bpf.Flow{})) // the key's size is no multiple of 8
	)
	store := func(at int16, v uint64) asm.Instruction { return asm.StoreImm(asm.RFP, at, int64(v), asm.Word) }
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, op, asm.Word),
		asm.JNE.Imm(asm.R2, activeEstablished, "out"),
		asm.LoadMem(asm.R2, asm.R6, remotePort, asm.Word),
		asm.HostTo(asm.BE, asm.R2, asm.Word),
		asm.JNE.Imm(asm.R2, int32(port), "out"),
	}
	for at := flow; at < 0; at += 4 {
		ins = append(ins, store(at, 0))
	}
	for _, addr := range []int16{key + int16(unsafe.Offsetof(bpf.ConnKey{}.ServerAddr)), key + int16(unsafe.Offsetof(bpf.ConnKey{}.AgentAddr))} {
		ins = append(ins, store(addr+8, 0xffff0000), store(addr+12, 0x0100007f)) // ::ffff:127.0.0.1 in memory
	}
	ins = append(ins,
		asm.StoreMem(asm.RFP, key+int16(unsafe.Offsetof(bpf.ConnKey{}.ServerPort)), asm.R2, asm.Half),
		asm.LoadMem(asm.R2, asm.R6, localPort, asm.Word),
		asm.StoreMem(asm.RFP, key+int16(unsafe.Offsetof(bpf.ConnKey{}.AgentPort)), asm.R2, asm.Half),
		asm.LoadMem(asm.R2, asm.R6, sndNxt, asm.Word),
		asm.StoreMem(asm.RFP, flow+int16(unsafe.Offsetof(bpf.Flow{}.SndNxt)), asm.R2, asm.Word),
		asm.LoadMem(asm.R2, asm.R6, rcvNxt, asm.Word),
		asm.StoreMem(asm.RFP, flow+int16(unsafe.Offsetof(bpf.Flow{}.RcvNxt)), asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R1, flows.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(key)),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, int32(flow)),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("out"),
		asm.Return(),
	)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SockOps, License: "GPL", Instructions: ins})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	attachRoot(t, p)
}
