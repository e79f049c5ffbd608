package splice_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/userspace/splice"
)

// A wire is what a rig is made of, without net/http: the test plays the server, the
// agent and the clients, and so decides what happens when.
type wire struct {
	t       *testing.T
	set     *maps.Set
	s       *splice.Splicer
	server  net.Conn
	backend net.Conn
}

func newWire(t *testing.T) *wire {
	t.Helper()
	return newWireOn(t, openDatapath(t).Maps())
}

func newWireOn(t *testing.T, set *maps.Set) *wire {
	t.Helper()
	w := &wire{t: t, set: set, s: splice.New(set, splice.Default())}
	w.dial()
	return w
}

// dial makes another connection to the server the wire's.
func (w *wire) dial() {
	w.t.Helper()
	w.server, w.backend = w.pair(false, func(addr string) (net.Conn, error) {
		return w.s.DialBackend(w.t.Context(), "tcp4", addr, 0)
	})
}

func (w *wire) pair(wrap bool, dial func(string) (net.Conn, error)) (accepted, dialled net.Conn) {
	w.t.Helper()
	ln, err := splice.ListenConfig().Listen(w.t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	if wrap {
		ln = w.s.WrapListener(ln)
	}
	defer ln.Close()
	if dialled, err = dial(ln.Addr().String()); err != nil {
		w.t.Fatal(err)
	}
	if accepted, err = ln.Accept(); err != nil {
		w.t.Fatal(err)
	}
	for _, c := range []net.Conn{accepted, dialled} {
		w.t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // only ends a hang
			w.t.Fatal(err)
		}
	}
	return accepted, dialled
}

// client returns both ends of a client's connection: the agent's and its own.
func (w *wire) client() (target, client net.Conn) {
	return w.pair(true, func(addr string) (net.Conn, error) {
		var d net.Dialer
		d.SetMultipathTCP(false)
		return d.DialContext(w.t.Context(), "tcp4", addr)
	})
}

// move writes to one connection and reads it at another.
func (w *wire) move(from, to net.Conn, data string) {
	w.t.Helper()
	if _, err := io.WriteString(from, data); err != nil {
		w.t.Fatal(err)
	}
	w.expect(to, data)
}

func (w *wire) expect(c net.Conn, want string) {
	w.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil {
		w.t.Fatalf("after %q: %v", got[:n], err)
	}
	same(w.t, string(got), want)
}

// relay moves data from the server through the agent to the client.
func (w *wire) relay(target, client net.Conn, data string) {
	w.t.Helper()
	w.move(w.server, w.backend, data)
	w.move(target, client, data)
}

const askWire = "GET / HTTP/1.1\r\n\r\n"

// begin has a response begun and armed: its head and one chunk are delivered.
func (w *wire) begin(target, client net.Conn) *splice.Response {
	w.t.Helper()
	r := w.admit(target, client)
	r.Flushed(5)
	return r
}

// admit is begin without the arm.
func (w *wire) admit(target, client net.Conn) *splice.Response {
	w.t.Helper()
	w.move(w.backend, w.server, askWire)
	w.relay(target, client, head+chunk("first"))
	return w.s.Begin(target, w.backend, splice.ResponseInfo{ClientHTTP11: true, BackendChunked: true, ClientChunked: true})
}

func (w *wire) redirected() uint64 {
	w.t.Helper()
	return w.counters()[bpf.Redirected].Events
}

func (w *wire) counters() [bpf.ReasonCount]bpf.Counter {
	w.t.Helper()
	c, err := w.set.Counters()
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// outcome ends a response whose last chunk the agent has had and wants it to be
// counted so, as the only one.
func (w *wire) outcome(r *splice.Response, want splice.Reason) {
	w.t.Helper()
	if err := r.End(); err != nil {
		w.t.Error(err)
	}
	w.s.Counts(func(res splice.Result, why splice.Reason, n uint64) {
		if n > 0 && (res != splice.Ended || why != want) || n != 1 && res == splice.Ended && why == want {
			w.t.Errorf("%d responses %s as %s, want one ended as %s", n, res, why, want)
		}
	})
}

// net/http gives a connection to the next request when the body's end has been read,
// which is before the copy loop ends the response: the numbers of the two must not
// mix.
func TestEndAfterTheConnectionServesAnother(t *testing.T) {
	w := newWire(t)
	target1, client1 := w.client()
	target2, client2 := w.client()

	r1 := w.begin(target1, client1)
	w.move(w.server, client1, chunk("for the first client"))
	w.relay(target1, client1, last)

	r2 := w.begin(target2, client2)
	w.move(w.server, client2, chunk("for the second client"))
	if err := r1.End(); err != nil {
		t.Errorf("first response: %v", err)
	}
	w.move(w.server, client2, chunk("and more"))
	if n := w.redirected(); n != 3 {
		t.Errorf("%d chunks were redirected, want 3", n)
	}
	w.relay(target2, client2, last)
	if err := r2.End(); err != nil {
		t.Errorf("second response: %v", err)
	}
}

// An abort after the body's end leaves the connection to the request that has it now.
func TestAbortAfterTheConnectionServesAnother(t *testing.T) {
	w := newWire(t)
	target1, client1 := w.client()
	target2, client2 := w.client()
	r1 := w.begin(target1, client1)
	w.move(w.server, client1, chunk("for the first client"))
	w.move(w.server, w.backend, last)

	r2 := w.begin(target2, client2)
	r1.Abort()
	w.move(w.server, client2, chunk("for the second client"))
	w.relay(target2, client2, last)
	if err := r2.End(); err != nil {
		t.Errorf("second response: %v", err)
	}
}

// Bytes that nobody accounts for are damage: the client is reset, and is not told
// that the response is whole.
func TestDamageIsSeen(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r := w.begin(target, client)
	w.move(w.server, client, chunk("second"))
	raw, err := target.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// Past the wrapper, as a write of somebody else would go.
	err = raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), []byte("x")) })
	if err != nil {
		t.Fatal(err)
	}
	w.expect(client, "x")
	w.move(w.server, w.backend, last)
	if err := r.End(); !errors.Is(err, splice.ErrDamaged) {
		t.Fatalf("End: %v, want ErrDamaged", err)
	}
	if _, err := target.Write([]byte(last)); err == nil {
		t.Error("the client's connection still takes bytes")
	}
	if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("client: %d, %v, want a reset", n, err)
	}
	if n, err := w.server.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("server: %d, %v, want the end of the connection", n, err)
	}
}

// Bytes that were under way when the agent armed make it miss; nothing is reordered
// and the next arm holds.
func TestArmMissesBytesUnderWay(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	w.move(w.backend, w.server, askWire)
	w.relay(target, client, head+chunk("first"))
	r := w.s.Begin(target, w.backend, splice.ResponseInfo{ClientHTTP11: true, BackendChunked: true, ClientChunked: true})
	if _, err := io.WriteString(w.server, chunk("under way")); err != nil {
		t.Fatal(err)
	}
	r.Flushed(5)
	if _, err := io.WriteString(w.server, chunk("behind it")); err != nil {
		t.Fatal(err)
	}
	if n := w.redirected(); n != 0 {
		t.Fatalf("%d chunks overtook one that was under way", n)
	}
	w.expect(w.backend, chunk("under way")+chunk("behind it"))
	w.move(target, client, chunk("under way")+chunk("behind it"))
	r.Flushed(5 + 9 + 9)
	w.move(w.server, client, chunk("direct"))
	w.relay(target, client, last)
	if err := r.End(); err != nil {
		t.Error(err)
	}
	c, err := w.set.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if c[bpf.ArmMissed].Events != 1 || c[bpf.ArmTaken].Events != 1 {
		t.Errorf("arms: %d missed, %d taken, want 1 and 1", c[bpf.ArmMissed].Events, c[bpf.ArmTaken].Events)
	}
}

// The agent does not arm while something of the body sits between the wrapper and the
// client.
func TestNotArmedBeforeAllIsDelivered(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	w.move(w.backend, w.server, askWire)
	w.relay(target, client, head+chunk("first")+chunk("second"))
	r := w.s.Begin(target, w.backend, splice.ResponseInfo{ClientHTTP11: true, BackendChunked: true, ClientChunked: true})
	r.Flushed(5) // the copy loop has only seen the first one
	w.move(w.server, w.backend, "5\r\nth")
	r.Flushed(11) // and now half a chunk is there
	w.move(w.server, w.backend, "ird\r\n")
	if n := w.redirected(); n != 0 {
		t.Errorf("%d messages were redirected", n)
	}
	r.Flushed(16)
	w.move(target, client, chunk("third"))
	w.move(w.server, client, chunk("fourth"))
	w.relay(target, client, last)
	if err := r.End(); err != nil {
		t.Error(err)
	}
}

// An arm that the terminator did not find, because it came too early, is not there
// for the next response.
func TestArmDoesNotOutliveItsResponse(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	w.move(w.backend, w.server, askWire)
	w.relay(target, client, head+chunk("first"))
	r := w.s.Begin(target, w.backend, splice.ResponseInfo{ClientHTTP11: true, BackendChunked: true, ClientChunked: true})
	if _, err := io.WriteString(w.server, last); err != nil {
		t.Fatal(err)
	}
	r.Flushed(5)
	w.expect(w.backend, last)
	if err := r.End(); err != nil {
		t.Error(err)
	}
	n := 0
	if err := w.set.Arms(func(maps.Conn, bpf.Arm) bool { n++; return true }); err != nil || n != 0 {
		t.Errorf("%d arms are left, %v", n, err)
	}
}

// E29: when the client's socket runs full all the same (the system is short of
// memory), the server's send is short and it sends the rest again, from the middle of
// a chunk. Whatever becomes of that, the client is never told that it has everything.
func TestShortSendIsSeen(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	if err := client.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	r := w.begin(target, client)
	// Take away what the Splicer gave.
	socket, err := target.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := socket.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 1) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	raw, err := w.server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	message := []byte(chunk(token("s", 0, 30_000)))
	short, sent := false, 0
	for range 10 {
		var n int
		if e := raw.Control(func(fd uintptr) {
			n, err = unix.SendmsgN(int(fd), message[sent:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}); e != nil {
			t.Fatal(e)
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		sent += max(n, 0)
		if sent < len(message) {
			short = true
			break
		}
		sent = 0
	}
	if !short {
		t.Skip("the client's socket took everything: no short send on this kernel")
	}
	read := make(chan string)
	go func() {
		b, _ := io.ReadAll(client)
		read <- string(b)
	}()
	// The rest, as an event loop sends it when it is told that it can.
	rest := message[sent:]
	for len(rest) > 0 {
		var n int
		if e := raw.Control(func(fd uintptr) {
			n, err = unix.SendmsgN(int(fd), rest, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}); e != nil {
			t.Fatal(e)
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		rest = rest[max(n, 0):]
		time.Sleep(time.Millisecond)
	}
	if _, err := io.WriteString(w.server, last); err != nil {
		t.Fatal(err)
	}
	// The copy loop reads on; what it gets it cannot take for chunks.
	buf := make([]byte, 64<<10)
	n := 0
	for !strings.HasSuffix(string(buf[:n]), last) {
		m, err := w.backend.Read(buf[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	if err := r.End(); !errors.Is(err, splice.ErrDamaged) {
		t.Errorf("End: %v after %d bytes to the agent, want ErrDamaged", err, n)
	}
	if got := <-read; strings.HasSuffix(got, last) {
		t.Error("the client was told that the response is whole")
	}
}

// H19: a server's socket that is taken out of the map in the middle of a stream, as a
// new agent does with its predecessor's, goes on as a plain one.
func TestSweptServerGoesOn(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r := w.begin(target, client)
	w.move(w.server, client, chunk("spliced"))
	if _, err := io.WriteString(w.server, chunk("passed")+last); err != nil {
		t.Fatal(err)
	}
	if n, err := w.set.Sweep(); err != nil || n != 1 {
		t.Fatalf("swept %d flows, %v", n, err)
	}
	if _, err := io.WriteString(w.server, "plain"); err != nil {
		t.Fatal(err)
	}
	w.expect(w.backend, chunk("passed")+last+"plain")
	r.Abort()
}

// The copy loop of a spliced response sees nothing; an idle timeout must not take that
// for silence.
func TestRedirectedChunksAreProgress(t *testing.T) {
	w := newWire(t)
	target, client := w.client()
	r := w.begin(target, client)
	if n := r.Redirected(); n != 0 {
		t.Errorf("%d bytes before the first chunk", n)
	}
	message := chunk("direct")
	w.move(w.server, client, message)
	if n := r.Redirected(); n != int64(len(message)) {
		t.Errorf("%d bytes, want %d", n, len(message))
	}
	r.Abort()
	off := splice.New(nil, splice.Default()).Begin(target, w.backend, splice.ResponseInfo{})
	if n := off.Redirected(); n != 0 {
		t.Errorf("a response that is not spliced has %d bytes redirected", n)
	}
}
