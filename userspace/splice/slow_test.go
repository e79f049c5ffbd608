package splice_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/splice"
)

// A client that sleeps in a large stream gets every byte: the credit runs out, the
// agent relays with ordinary back-pressure, and takes up the splice again.
func TestSlowClient(t *testing.T) {
	for name, slow := range map[string]func(io.Reader) ([]byte, error){
		"sleeps once": func(r io.Reader) ([]byte, error) {
			first := make([]byte, 1000)
			if _, err := io.ReadFull(r, first); err != nil {
				return nil, err
			}
			time.Sleep(1500 * time.Millisecond)
			rest, err := io.ReadAll(r)
			return append(first, rest...), err
		},
		"reads in gulps": func(r io.Reader) ([]byte, error) {
			var all []byte
			buf := make([]byte, 300_000)
			for {
				n, err := io.ReadFull(r, buf)
				all = append(all, buf[:n]...)
				if err != nil {
					if err == io.EOF || err == io.ErrUnexpectedEOF {
						err = nil
					}
					return all, err
				}
				time.Sleep(30 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			const n, size = 4000, 1000
			e := newEngine(t, func(c net.Conn, _ *http.Request) bool {
				ok := send(c, head)
				for i := range n {
					ok = ok && send(c, chunk(token("s", i, size)))
					if i%20 == 0 {
						pause()
					}
				}
				return ok && send(c, last)
			})
			p := r.dial(t)
			if err := p.SetReadBuffer(32 << 10); err != nil {
				t.Fatal(err)
			}
			p.ask(t, e, "/")
			got, err := slow(p.open(t))
			if err != nil {
				t.Fatal(err)
			}
			same(t, string(got), tokens("s", n, size))
			c := r.counts()
			t.Logf("redirected %d, credit ran out %d, arms %d", c[bpf.Redirected].Events, c[bpf.PassCredit].Events, c[bpf.ArmTaken].Events)
			if c[bpf.PassCredit].Events == 0 {
				t.Error("the credit never ran out: the test proves nothing")
			}
			if n := r.ended(splice.Ended, splice.Spliced); n != 1 {
				t.Errorf("%d responses were spliced, want 1", n)
			}
		})
	}
}

// A client that never reads stops the engine, as without a splice; what is kept for
// it is bounded, down to chunks of a single byte, whose overhead is all there is.
func TestNeverReadingClient(t *testing.T) {
	for size, most := range map[int]int64{1: 20_000, 220: 1 << 30, 8000: 1 << 30} { // messages in all
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			r := newRig(t)
			m := chunk(strings.Repeat("x", size))
			var sent atomic.Int64
			conns, left := make(chan net.Conn, 1), make(chan struct{})
			e := newEngine(t, func(c net.Conn, _ *http.Request) bool {
				conns <- c
				for ok := send(c, head); ok && sent.Load() < most; sent.Add(1) {
					ok = send(c, m)
					if sent.Load() < 100 {
						pause()
					}
				}
				_, _ = c.Read(make([]byte, 1)) // until the agent goes
				close(left)
				return false
			})
			p := r.dial(t)
			if err := p.SetReadBuffer(16 << 10); err != nil {
				t.Fatal(err)
			}
			p.ask(t, e, "/")
			if _, err := io.ReadFull(p.open(t), make([]byte, 40*size)); err != nil {
				t.Fatal(err)
			}
			if r.counts()[bpf.Redirected].Events == 0 {
				t.Fatal("nothing was redirected")
			}
			stuck(t, r, <-conns, func() (int64, bool) { n := sent.Load(); return n, n == most })
			testutil.Eventually(t, "the credit to run out: or the test proves nothing", func() bool { return r.counts()[bpf.PassCredit].Events > 0 })
			before := r.counts()
			bytes := uint64(0)
			for why := bpf.Redirected; why < bpf.ReasonCount; why++ {
				bytes += before[why].Bytes
			}
			// Both sockets' buffers, the agent's, and one credit.
			if limit := uint64(24 << 20); bytes > limit {
				t.Errorf("%d bytes are kept for a client that does not read, limit %d", bytes, limit)
			}
			// The agent fills the socket to its limit, as always; the kernel adds nothing.
			memory, limit := r.memory(t)
			if memory > limit+limit/8 {
				t.Errorf("the client's socket holds %d bytes, its limit is %d", memory, limit)
			}
			redirected := before[bpf.Redirected]
			t.Logf("kept %d bytes, redirected %d in %d messages; the client's socket holds %d", bytes, redirected.Bytes, redirected.Events, memory)
			p.Close()
			select {
			case <-left:
			case <-time.After(time.Minute):
				t.Fatal("the engine was not told that the client left")
			}
		})
	}
}

// memory returns the kernel memory that the last client's socket holds for sending,
// and its limit.
func (r *rig) memory(t *testing.T) (used, limit uint32) {
	t.Helper()
	r.mu.Lock()
	c := r.client
	r.mu.Unlock()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info [9]uint32 // linux/sock_diag.h: 3 is sndbuf, 5 wmem_queued
	if err := raw.Control(func(fd uintptr) {
		size := uint32(unsafe.Sizeof(info))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			t.Error(errno)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return info[5], info[3]
}

// stuck returns when nothing moves any more, and nothing can: neither the engine
// nor the agent has room to send, or the engine has sent all. A sender that makes no
// step may also wait for a processor, and one without room for the next moment: so
// both, over some looks.
func stuck(t *testing.T, r *rig, engine net.Conn, sent func() (n int64, all bool)) {
	t.Helper()
	r.mu.Lock()
	client := r.client
	r.mu.Unlock()
	before, looks := int64(-1), 0
	testutil.Eventually(t, "the engine to stop sending", func() bool {
		time.Sleep(50 * time.Millisecond)
		n, all := sent()
		if n != before || !all && (writable(t, engine) || writable(t, client)) {
			before, looks = n, 0
			return false
		}
		looks++
		return looks == 10
	})
}

// writable tells whether the kernel has room for more on a connection.
func writable(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := raw.Control(func(fd uintptr) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
	}); err != nil {
		t.Fatal(err)
	}
	if err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatal(err)
	}
	return n > 0
}

// E6: a level-triggered event loop whose socket says "writable" while its send says
// EAGAIN would spin; an asyncio server must sleep instead while its client does.
func TestLevelTriggeredSender(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3 for a server on asyncio:", err)
	}
	r := newRig(t)
	cmd := exec.Command(python, "testdata/engine.py")
	_, out := testutil.Start(t, cmd)
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{addr: "127.0.0.1:" + strings.TrimSpace(port)}

	p := r.dial(t)
	if err := p.SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	p.ask(t, e, "/?n=6000&size=1000")
	body := p.open(t)
	got := make([]byte, 100_000)
	if _, err := io.ReadFull(body, got); err != nil {
		t.Fatal(err)
	}
	if r.counts()[bpf.Redirected].Events == 0 {
		t.Fatal("nothing was redirected")
	}
	quiet(t, r, cmd.Process.Pid)
	const nap = 2 * time.Second
	before := ticks(t, cmd.Process.Pid)
	time.Sleep(nap)
	used := ticks(t, cmd.Process.Pid) - before
	t.Logf("the server used %v of CPU in %v beside a client that does not read", used, nap)
	if used > nap/4 {
		t.Errorf("the server spins: %v of CPU in %v", used, nap)
	}
	rest, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&want, "%-999d\n", i)
	}
	same(t, string(got)+string(rest), want.String())
}

// quiet waits until the server sleeps and no message has been sent for a while. One
// that does not sleep although nothing is sent is let through: it spins, or it waits
// for a processor, and how much of one it uses is seen next.
func quiet(t *testing.T, r *rig, pid int) {
	t.Helper()
	n, same := uint64(0), 0
	testutil.Eventually(t, "the engine to stall", func() bool {
		time.Sleep(100 * time.Millisecond)
		var sum uint64
		for _, c := range r.counts() {
			sum += c.Bytes
		}
		if sum != n {
			n, same = sum, 0
		}
		same++
		return same > 5 && stat(t, pid)[0] == "S" || same > 50
	})
}

// stat returns the fields of a process from its state on, see proc_pid_stat(5).
func stat(t testing.TB, pid int) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(b), ") ")
	f := strings.Fields(after)
	if !ok || len(f) < 13 {
		t.Fatalf("unreadable stat: %s", b)
	}
	return f
}

// ticks returns the CPU time that a process has used.
func ticks(t testing.TB, pid int) time.Duration {
	t.Helper()
	f := stat(t, pid)
	user, err1 := strconv.Atoi(f[11])
	sys, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return time.Duration(user+sys) * time.Second / clockTicks
}

// clockTicks is USER_HZ, 100 on every architecture that this is built for.
const clockTicks = 100
