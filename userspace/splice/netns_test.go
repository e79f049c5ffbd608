package splice_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/userspace/splice"
)

// A namespace is a network namespace with a thread in it. It goes when the test
// ends and its sockets are closed.
type namespace struct {
	do chan func()
	fd int
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	needRoot(t)
	ns := &namespace{do: make(chan func())}
	ready := make(chan error)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			ns.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
		if err != nil {
			return
		}
		for f := range ns.do {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() {
		close(ns.do)
		<-done
		unix.Close(ns.fd)
	})
	ns.run(t, func() error { return up("lo") })
	return ns
}

// run runs f inside the namespace; sockets that f makes belong to it for good.
func (ns *namespace) run(t *testing.T, f func() error) {
	t.Helper()
	if err := ns.try(f); err != nil {
		t.Fatal(err)
	}
}

func (ns *namespace) try(f func() error) error {
	res := make(chan error)
	ns.do <- func() { res <- f() }
	return <-res
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	return netlink.LinkSetUp(l)
}

func address(name string, addrs ...string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	for _, s := range addrs {
		a, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, a); err != nil {
			return fmt.Errorf("address %s: %w", s, err)
		}
	}
	return netlink.LinkSetUp(l)
}

// pod makes a namespace that is wired to another one by a veth pair, as a pod is to
// its node.
func pod(t *testing.T, node *namespace, n int) *namespace {
	t.Helper()
	p := newNamespace(t)
	node.run(t, func() error {
		err := netlink.LinkAdd(&netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: fmt.Sprintf("pod%d", n)},
			PeerName:      "eth0",
			PeerNamespace: netlink.NsFd(p.fd),
		})
		if err != nil {
			return fmt.Errorf("veth: %w", err)
		}
		return address(fmt.Sprintf("pod%d", n), fmt.Sprintf("10.77.%d.1/24", n), fmt.Sprintf("fd77:%d::1/64", n))
	})
	p.run(t, func() error {
		return address("eth0", fmt.Sprintf("10.77.%d.2/24", n), fmt.Sprintf("fd77:%d::2/64", n))
	})
	return p
}

// listen listens inside the namespace.
func (ns *namespace) listen(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	var ln net.Listener
	ns.run(t, func() (err error) {
		ln, err = splice.ListenConfig().Listen(context.Background(), network, addr)
		return err
	})
	return ln
}

// The model servers run in pods of their own; the agent in another, wired by veth.
func TestOtherNamespace(t *testing.T) {
	r := newRig(t)
	node := newNamespace(t)
	server := pod(t, node, 1)
	for _, tt := range []struct{ network, listen, via string }{
		{"tcp4", "10.77.1.2:0", ""},
		{"tcp6", "[fd77:1::2]:0", ""},
		{"tcp", "[::]:0", "10.77.1.2"}, // a server that listens on both speaks IPv4 on an IPv6 socket
	} {
		t.Run(tt.network+" "+tt.listen, func(t *testing.T) {
			e := serveEngine(t, server.listen(t, tt.network, tt.listen), stream("s", 40, 150))
			target := e.addr
			if tt.via != "" {
				_, port, _ := net.SplitHostPort(e.addr)
				target = net.JoinHostPort(tt.via, port)
			}
			e.addr = target
			r.dialVia = node.try
			before := r.counts()
			p := r.dial(t)
			p.ask(t, e, "/")
			same(t, p.answer(t), tokens("s", 40, 150))
			after := r.counts()
			if n := after[bpf.ClaimTaken].Events - before[bpf.ClaimTaken].Events; n != 1 {
				t.Errorf("%d sockets were claimed, want 1", n)
			}
			if n := after[bpf.Redirected].Events - before[bpf.Redirected].Events; n < 35 {
				t.Errorf("%d of 40 chunks were redirected", n)
			}
		})
	}
}

// A pod that knows the addresses and ports of a connection of the agent and has the
// same ones in its own namespace gets nothing into the maps: not when the server's
// socket was claimed, and not when the agent's end still waits for a server that the
// program cannot see.
func TestForeignSameAddresses(t *testing.T) {
	needRoot(t)
	agent := netip.MustParseAddrPort("127.0.0.1:41001")
	server := netip.MustParseAddrPort("127.0.0.1:41002")
	key := maps.Conn{Server: server, Agent: agent}.Key()
	for _, state := range []bpf.FlowState{bpf.FlowPassing, bpf.FlowAnnounced} {
		t.Run(state.String(), func(t *testing.T) {
			us, hostile := newNamespace(t), newNamespace(t)
			dir := subgroup(t)
			d, err := datapath.Open(datapath.Options{Cgroup: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			set := d.Maps()
			// A server's sockets belong to the cgroup in which it began to listen.
			if state == bpf.FlowPassing {
				enter(t, dir)
			}
			ln := us.listen(t, "tcp4", server.String())
			defer ln.Close()
			enter(t, dir)
			connect(t, us, ln, set, agent)
			before, ok, err := set.Flow(key)
			if err != nil || !ok || before.State != state {
				t.Fatalf("our own flow: %+v, %v, %v", before, ok, err)
			}
			theirs := hostile.listen(t, "tcp4", server.String())
			defer theirs.Close()
			connect(t, hostile, theirs, nil, agent)

			after, _, err := set.Flow(key)
			if err != nil {
				t.Fatal(err)
			}
			if after != before {
				t.Errorf("flow was %+v, is %+v", before, after)
			}
			counts, err := set.Counters()
			if err != nil {
				t.Fatal(err)
			}
			if n := counts[bpf.ClaimMismatch].Events; n != 1 {
				t.Errorf("%d mismatches were counted, want 1", n)
			}
			want := uint64(0)
			if state == bpf.FlowPassing {
				want = 1
			}
			if n := counts[bpf.ClaimTaken].Events; n != want {
				t.Errorf("%d sockets were claimed, want %d", n, want)
			}
		})
	}
}

// subgroup makes a cgroup that goes with the test, and brings the process back to
// where it was.
func subgroup(t *testing.T) string {
	t.Helper()
	root, _, err := datapath.FindCgroup()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	home := root
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			home = filepath.Join(root, path)
		}
	}
	dir, err := os.MkdirTemp(root, "tautline-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		enter(t, home)
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// enter moves this process into a cgroup.
func enter(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		t.Fatal(err)
	}
}

// connect connects to ln inside a namespace, from exactly that address. A Set
// announces the connection.
func connect(t *testing.T, ns *namespace, ln net.Listener, set *maps.Set, agent netip.AddrPort) {
	t.Helper()
	ns.run(t, func() error {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(agent), Control: func(_, _ string, c syscall.RawConn) error {
			if set == nil {
				return nil
			}
			var err error
			return errors.Join(c.Control(func(fd uintptr) { err = set.Announce(fd, 0) }), err)
		}}
		d.SetMultipathTCP(false)
		c, err := d.DialContext(context.Background(), "tcp4", ln.Addr().String())
		if err != nil {
			return err
		}
		a, err := ln.Accept()
		if err != nil {
			c.Close()
			return err
		}
		t.Cleanup(func() {
			c.Close()
			a.Close()
		})
		return nil
	})
}

// IPv6, and IPv4 on a socket that listens on both, on loopback.
func TestIPv6(t *testing.T) {
	r := newRig(t)
	v6 := r.listen("tcp6", "[::1]:0")
	dual := r.listen("tcp", "[::]:0")
	_, dualPort, _ := net.SplitHostPort(dual)
	for _, tt := range []struct{ client, network, engine, via string }{
		{v6, "tcp6", "[::1]:0", ""},
		{r.addr, "tcp6", "[::1]:0", ""},
		{v6, "tcp4", "127.0.0.1:0", ""},
		{"127.0.0.1:" + dualPort, "tcp", "[::]:0", "127.0.0.1"},
		{"[::1]:" + dualPort, "tcp", "[::]:0", "::1"},
	} {
		t.Run(tt.client+" "+tt.engine+" "+tt.via, func(t *testing.T) {
			e := newEngineOn(t, tt.network, tt.engine, stream("s", 30, 90))
			if tt.via != "" {
				_, port, _ := net.SplitHostPort(e.addr)
				e.addr = net.JoinHostPort(tt.via, port)
			}
			before := r.counts()
			p := r.dialAddr(t, tt.client)
			p.ask(t, e, "/")
			same(t, p.answer(t), tokens("s", 30, 90))
			if n := r.counts()[bpf.Redirected].Events - before[bpf.Redirected].Events; n < 25 {
				t.Errorf("%d of 30 chunks were redirected", n)
			}
		})
	}
}

// Another owner of sockmaps that was there first keeps the socket: the connection
// works, unspliced, and the reason is counted.
func TestOtherSockmapOwner(t *testing.T) {
	needRoot(t)
	ln, err := splice.ListenConfig().Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	otherOwner(t, ln.Addr().(*net.TCPAddr).Port)
	r := newRig(t)
	e := serveEngine(t, ln, stream("s", 20, 90))
	p := r.dial(t)
	p.ask(t, e, "/")
	same(t, p.answer(t), tokens("s", 20, 90))
	if n := r.counts()[bpf.ClaimBusy].Events; n != 1 {
		t.Errorf("%d busy sockets were counted, want 1", n)
	}
	if n := r.ended(splice.Ended, splice.Unclaimed); n != 1 {
		t.Errorf("%d responses counted, want 1", n)
	}
}

// otherOwner puts the sockets that a port accepts into a sockhash of its own, with a
// program that passes everything.
func otherOwner(t *testing.T, port int) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	socks, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.SockHash, KeySize: 4, ValueSize: 8, MaxEntries: 64})
	check(err)
	t.Cleanup(func() { socks.Close() })
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SkMsg, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, 1), asm.Return(),
	}})
	check(err)
	t.Cleanup(func() { pass.Close() })
	check(link.RawAttachProgram(link.RawAttachProgramOptions{Target: socks.FD(), Program: pass, Attach: ebpf.AttachSkMsgVerdict}))
	const op, localPort, passiveEstablished = 0, 68, 5 // struct bpf_sock_ops
	take, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SockOps, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, op, asm.Word),
		asm.JNE.Imm(asm.R2, passiveEstablished, "out"),
		asm.LoadMem(asm.R2, asm.R1, localPort, asm.Word),
		asm.JNE.Imm(asm.R2, int32(port), "out"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R2, socks.FD()),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, -4),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnSockHashUpdate.Call(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("out"),
		asm.Return(),
	}})
	check(err)
	t.Cleanup(func() { take.Close() })
	root, _, err := datapath.FindCgroup()
	check(err)
	l, err := link.AttachCgroup(link.CgroupOptions{Path: root, Attach: ebpf.AttachCGroupSockOps, Program: take})
	check(err)
	t.Cleanup(func() { l.Close() })
}

// An agent that has another agent of this node for a backend: both want the socket
// between them, one as a server's, one as a client's. Only the outer one splices, and
// every byte arrives.
func TestAgentBehindAgent(t *testing.T) {
	inner, outer := newRig(t), newRig(t)
	e := newEngine(t, stream("s", 60, 120))
	// The outer agent asks the inner one, which finds the engine by the Host header.
	outer.tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return outer.s.DialBackend(ctx, network, inner.addr, 0)
	}
	for range 3 {
		p := outer.dial(t)
		for range 3 {
			p.ask(t, e, "/")
			same(t, p.answer(t), tokens("s", 60, 120))
		}
		p.Close()
	}
	for name, r := range map[string]*rig{"inner": inner, "outer": outer} {
		if n := r.ended(splice.Damaged, splice.Spliced); n != 0 {
			t.Errorf("%s: %d responses were damaged", name, n)
		}
	}
	if n := inner.ended(splice.Ended, splice.ClientBusy); n != 9 {
		t.Errorf("inner: %d responses had a busy client, want 9", n)
	}
	if n := outer.ended(splice.Ended, splice.Spliced); n != 9 {
		t.Errorf("outer: %d responses were spliced, want 9", n)
	}
}
