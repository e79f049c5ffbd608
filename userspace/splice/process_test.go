package splice_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/splice"
)

// childEnv makes the test binary be an agent of its own process.
const (
	childEnv   = "TAUTLINE_TEST_CHILD"
	pinPathEnv = "TAUTLINE_TEST_PIN_PATH"
	copyEnv    = "TAUTLINE_TEST_COPY" // the same loop, never armed
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	os.Exit(child())
}

// child serves as an agent until its standard input ends. It prints its address, or
// why it does not splice.
func child() int {
	tb := &childTB{}
	defer tb.end()
	_, k, st, err := splice.Start(tb.Context(), splice.ModeRequired, splice.Default(), func() (splice.Kernel, error) {
		d, err := datapath.Open(datapath.Options{PinPath: os.Getenv(pinPathEnv)})
		if err != nil {
			return nil, err
		}
		return d, nil
	})
	if err != nil {
		fmt.Println("refused:", err)
		return 1
	}
	tb.Cleanup(func() { _ = k.Close() })
	if !st.On {
		fmt.Println("off:", st.Reason)
		return 1
	}
	r := newRigWith(tb, k.Maps(), splice.Default())
	r.unspliced = os.Getenv(copyEnv) != ""
	fmt.Println(r.addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// childTB stands for a test in a process that has none.
type childTB struct {
	testing.TB
	cleanups []func()
}

func (c *childTB) Helper()                  {}
func (c *childTB) Context() context.Context { return context.Background() }
func (c *childTB) Cleanup(f func())         { c.cleanups = append(c.cleanups, f) }
func (c *childTB) Fatal(args ...any) {
	fmt.Println(args...)
	os.Exit(1)
}
func (c *childTB) end() {
	for i := len(c.cleanups) - 1; i >= 0; i-- {
		c.cleanups[i]()
	}
}

// An agent is a child process.
type agent struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	line string // what it printed
}

// startAgent starts one, with only the capabilities of caps unless that is nil.
func startAgent(t testing.TB, pinPath string, caps []int) *agent {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=1", pinPathEnv+"="+pinPath)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error)
	go func() {
		if caps != nil {
			runtime.LockOSThread() // never unlocked: the thread ends with its bounding set
			if err := bound(caps); err != nil {
				started <- err
				return
			}
		}
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	a := &agent{cmd: cmd, in: in}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("agent: %q, %v", line, err)
	}
	a.line = strings.TrimSpace(line)
	return a
}

// bound drops everything but caps from this thread's bounding set, so that even a
// root process started by it has no more.
func bound(caps []int) error {
	keep := make(map[int]bool)
	for _, c := range caps {
		keep[c] = true
	}
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		if keep[c] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EINVAL {
			return err
		}
	}
	return nil
}

// With nothing but the documented capabilities the agent starts and splices; with
// one of them less it says which.
func TestCapabilities(t *testing.T) {
	needRoot(t)
	var all []int
	for _, c := range datapath.Capabilities() {
		all = append(all, c.Bit)
	}
	a := startAgent(t, "", all)
	e := newEngine(t, stream("s", 20, 90))
	r := &rig{t: t, addr: a.line}
	if _, _, err := net.SplitHostPort(a.line); err != nil {
		t.Fatalf("agent says %q", a.line)
	}
	p := r.dial(t)
	p.ask(t, e, "/")
	same(t, p.answer(t), tokens("s", 20, 90))

	for i, c := range datapath.Capabilities() {
		some := append(append([]int{}, all[:i]...), all[i+1:]...)
		a := startAgent(t, "", some)
		if !strings.Contains(a.line, "missing capabilities: "+c.Name) {
			t.Errorf("without %s: agent says %q", c.Name, a.line)
		}
	}
}

// H8: the agent is killed under load. Nothing that it left disturbs the servers; the
// next agent splices, also towards an engine that still holds old connections.
func TestKilledAgent(t *testing.T) {
	pins := testutil.BPFFS(t) + "/tautline"
	gone := make(chan int, 10)
	endless := until("long", gone)
	hold := make(chan struct{})
	e := newEngine(t, func(c net.Conn, req *http.Request) bool {
		switch req.URL.Path {
		case "/endless":
			return endless(c, req)
		case "/held":
			// An engine that is busy elsewhere and has not seen that the agent is
			// dead: its socket stays in the map for as long.
			ok := send(c, head, chunk("one"))
			pause()
			ok = ok && send(c, chunk("two"))
			<-hold
			return ok && false
		}
		ok := send(c, head, chunk(token("s", 0, 90)))
		testutil.Eventually(t, "the agent to arm", func() bool { return armed(pins) })
		for i := 1; i < 40; i++ {
			ok = ok && send(c, chunk(token("s", i, 90)))
		}
		return ok && send(c, last)
	})
	defer close(hold)

	first := startAgent(t, pins, nil)
	r := &rig{t: t, addr: first.line}
	for _, path := range []string{"/endless", "/held"} {
		p := r.dial(t)
		p.ask(t, e, path)
		if _, err := io.ReadFull(p.open(t), make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.cmd.Wait()
	<-gone // the engine was told

	for range 2 { // the second one finds what an orderly end leaves
		next := startAgent(t, pins, nil)
		set, err := maps.Open(pins)
		if err != nil {
			t.Fatal(err)
		}
		before, err := set.Counters()
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, addr: next.line}
		p := r.dial(t)
		p.ask(t, e, "/")
		same(t, p.answer(t), tokens("s", 40, 90))
		after, err := set.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if n := after[bpf.Redirected].Events - before[bpf.Redirected].Events; n != 39 {
			t.Errorf("%d of 39 chunks were redirected after the restart", n)
		}
		live, err := set.Live()
		if err != nil {
			t.Fatal(err)
		}
		if live[bpf.FlowSpliced] != 0 || live[bpf.FlowPassing] != 1 {
			t.Errorf("flows after the restart: %v", live)
		}
		set.Close()
		p.Close()
		next.in.Close()
		if err := next.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// armed tells whether an agent of another process has armed a response.
func armed(pinPath string) bool {
	set, err := maps.Open(pinPath)
	if err != nil {
		return false
	}
	defer set.Close()
	n := 0
	err = set.Arms(func(maps.Conn, bpf.Arm) bool { n++; return true })
	return err == nil && n > 0
}
