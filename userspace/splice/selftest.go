package splice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
)

// SelfTestBackend is the backend number of the self-test's connections. It has no
// row, so its chunks stay out of everybody's numbers.
const SelfTestBackend = 1<<32 - 1

// selfTestTimeout bounds the self-test where the context does not.
const selfTestTimeout = 10 * time.Second

// Check is one step of the self-test.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`           // what was seen
	Advice string `json:"advice,omitempty"` // what to do about it, when not OK
}

// Failed returns an error that names the first check that is not OK, or nil.
func Failed(checks []Check) error {
	for _, c := range checks {
		if !c.OK {
			return fmt.Errorf("self-test: %s: %s", c.Name, c.Detail)
		}
	}
	return nil
}

// SelfTest splices on loopback with real sockets: a claim, an arm, redirected
// chunks, the terminator, a first token, a usage, a client that is slow. What a kernel's version
// promises does not count, this does. It ends after the first check that fails, within the
// context's deadline or ten seconds, and leaves nothing behind, in the kernel's
// counters neither: nobody else may use the maps meanwhile.
func SelfTest(ctx context.Context, set *maps.Set, p Params) []Check {
	var checks []Check
	if err := set.Uncounted(func() { checks = selfTest(ctx, set, p) }); err != nil {
		checks = append(checks, Check{Name: "counters", Detail: err.Error(), Advice: "please report this"})
	}
	return checks
}

func selfTest(ctx context.Context, set *maps.Set, p Params) []Check {
	deadline := time.Now().Add(selfTestTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	l := &loop{s: New(set, p), deadline: deadline}
	defer l.close()
	steps := []struct {
		name, advice string
		run          func(context.Context) (string, error)
	}{
		{"loopback", "allow TCP on 127.0.0.1", l.connect},
		{"claim", "attach at the root of cgroup v2; another owner of sockmaps (a service mesh, another eBPF agent) may hold the sockets", l.claim},
		{"redirect", "use a newer kernel: 6.1.148, 6.6, 6.12.42 or later", l.redirect},
		{"terminator", "use a newer kernel", l.terminate},
		{"reuse", "use a newer kernel", l.again},
		{"first token", "use a newer kernel", l.token},
		{"usage", "use a newer kernel", l.usage},
		{"slow client", "use a newer kernel; lower splice.credit_bytes", l.slow},
		{"fionread", "", l.fionread},
	}
	var checks []Check
	for _, step := range steps {
		detail, err := step.run(ctx)
		c := Check{Name: step.name, OK: err == nil, Detail: detail}
		if err != nil {
			c.Detail, c.Advice = err.Error(), step.advice
		}
		checks = append(checks, c)
		if err != nil {
			break
		}
	}
	return checks
}

// A loop is a server, an agent and a client in one process, on raw sockets.
type loop struct {
	s        *Splicer
	deadline time.Time

	open    []io.Closer
	server  net.Conn // the server's end of the backend connection
	backend net.Conn // the agent's end of it
	target  net.Conn // the agent's end of the client's connection
	client  net.Conn // the client's end of it
}

const (
	loopHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	loopLast = "0\r\n\r\n"
)

func loopChunk(i, size int) string {
	return fmt.Sprintf("%x\r\n%08d%s\r\n", size+8, i, strings.Repeat("~", size))
}

func (l *loop) close() {
	for _, c := range l.open {
		_ = c.Close() // nothing of value is lost
	}
}

// pair makes a connection to a new listener.
func (l *loop) pair(ctx context.Context, wrap func(net.Listener) net.Listener,
	dial func(addr string) (net.Conn, error)) (accepted, dialled net.Conn, err error) {
	ln, err := ListenConfig().Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = ln.Close() }() // what it accepted stays
	if err := ln.(*net.TCPListener).SetDeadline(l.deadline); err != nil {
		return nil, nil, err
	}
	if dialled, err = dial(ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	l.open = append(l.open, dialled)
	if accepted, err = wrap(ln).Accept(); err != nil {
		return nil, nil, err
	}
	l.open = append(l.open, accepted)
	return accepted, dialled, errors.Join(accepted.SetDeadline(l.deadline), dialled.SetDeadline(l.deadline))
}

func (l *loop) connect(ctx context.Context) (string, error) {
	var err error
	l.target, l.client, err = l.pair(ctx, l.s.WrapListener, func(addr string) (net.Conn, error) {
		return (&net.Dialer{Deadline: l.deadline}).DialContext(ctx, "tcp4", addr)
	})
	if err != nil {
		return "", err
	}
	l.server, l.backend, err = l.pair(ctx, func(ln net.Listener) net.Listener { return ln },
		func(addr string) (net.Conn, error) {
			ctx, cancel := context.WithDeadline(ctx, l.deadline)
			defer cancel()
			return l.s.DialBackend(ctx, "tcp4", addr, SelfTestBackend)
		})
	return "a client and a server are connected", err
}

func (l *loop) flow() (bpf.Flow, error) {
	b, ok := l.backend.(*backendConn)
	if !ok {
		return bpf.Flow{}, errors.New("the backend connection is not plain TCP")
	}
	f, ok, err := l.s.set.Flow(b.key)
	if err == nil && !ok {
		err = errors.New("no flow: the program did not see the agent's socket")
	}
	return f, err
}

func (l *loop) claim(context.Context) (string, error) {
	f, err := l.flow()
	if err != nil {
		return "", err
	}
	if f.State != bpf.FlowPassing {
		return "", fmt.Errorf("the server's socket was not taken: flow is %s", f.State)
	}
	return fmt.Sprintf("the server's socket was taken in netns %d", f.ServerNetns), nil
}

// begin relays a response's head and first bytes and begins to splice. told hears what
// the kernel says that it has passed.
func (l *loop) begin(first string, told word) (*Response, error) {
	if _, err := io.WriteString(l.backend, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(l.server, make([]byte, 18)); err != nil {
		return nil, err
	}
	first = loopHead + first
	if _, err := io.WriteString(l.server, first); err != nil {
		return nil, err
	}
	if err := l.relay(len(first)); err != nil {
		return nil, err
	}
	if err := expect(l.client, first); err != nil {
		return nil, err
	}
	return l.s.Begin(l.target, l.backend, ResponseInfo{
		Backend: SelfTestBackend, ClientHTTP11: true, BackendChunked: true, ClientChunked: true,
		FirstToken: told.first, Usage: told.usage,
	}), nil
}

// relay copies n bytes from the backend to the client.
func (l *loop) relay(n int) error {
	buf := make([]byte, n)
	if _, err := io.ReadFull(l.backend, buf); err != nil {
		return err
	}
	_, err := l.target.Write(buf)
	return err
}

// body is how much decoded body the agent has relayed.
func (l *loop) body() int64 { return l.backend.(*backendConn).frame.body }

func expect(c net.Conn, want string) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if string(got) != want {
		return errors.New("client got other bytes than were sent")
	}
	return nil
}

const loopChunks = 50

// stream sends chunks that must all be redirected.
func (l *loop) stream(r *Response) error {
	before, err := l.flow()
	if err != nil {
		return err
	}
	r.Flushed(l.body())
	if r.why != Spliced || !r.armed {
		return fmt.Errorf("not armed: %s", r.why)
	}
	for i := range loopChunks {
		if _, err := io.WriteString(l.server, loopChunk(i, i)); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	after, err := l.flow()
	if err != nil {
		return err
	}
	if n := after.Chunks - before.Chunks; n != loopChunks {
		return fmt.Errorf("%d of %d chunks were redirected", n, loopChunks)
	}
	for i := range loopChunks {
		if err := expect(l.client, loopChunk(i, i)); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) redirect(context.Context) (string, error) {
	r, err := l.begin(loopChunk(0, 4), word{})
	if err != nil {
		return "", err
	}
	if err := l.stream(r); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d of %d chunks went from the server to the client", loopChunks, loopChunks), l.finish(r)
}

func (l *loop) finish(r *Response) error {
	if _, err := io.WriteString(l.server, loopLast); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if err := l.relay(len(loopLast)); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if err := r.End(); err != nil {
		return err
	}
	return expect(l.client, loopLast)
}

func (l *loop) terminate(context.Context) (string, error) {
	f, err := l.flow()
	if err == nil && f.State != bpf.FlowPassing {
		err = fmt.Errorf("flow is %s after the last chunk", f.State)
	}
	return "the last chunk came to the agent and ended the splice", err
}

func (l *loop) again(context.Context) (string, error) {
	r, err := l.begin(loopChunk(0, 4), word{})
	if err != nil {
		return "", err
	}
	if err := l.stream(r); err != nil {
		return "", err
	}
	return "a second response on the same connections", l.finish(r)
}

// token sends a head alone and then a first token, which the kernel must pass and
// tell of.
func (l *loop) token(context.Context) (string, error) {
	told := 0
	r, err := l.begin("", word{first: func(time.Duration) { told++ }})
	if err != nil {
		return "", err
	}
	r.Flushed(0)
	if !r.armed {
		return "", fmt.Errorf("not armed: %s", r.why)
	}
	const event = "a\r\ndata: {}\n\n\r\n"
	if _, err := io.WriteString(l.server, event); err != nil {
		return "", fmt.Errorf("server: %w", err)
	}
	if err := expect(l.client, event); err != nil {
		return "", err
	}
	if l.s.CatchUp(); told != 1 {
		return "", errors.New("the agent heard nothing of a first token that was redirected")
	}
	return "a first token went from the server to the client, and the agent was told", l.finish(r)
}

// usage sends an event as one that tells the usage, of which the kernel must give the
// agent the end.
func (l *loop) usage(context.Context) (string, error) {
	var told []string
	r, err := l.begin(loopChunk(0, 4), word{usage: func(end []byte) { told = append(told, string(end)) }})
	if err != nil {
		return "", err
	}
	r.Flushed(l.body())
	if !r.armed {
		return "", fmt.Errorf("not armed: %s", r.why)
	}
	const event = "10\r\ndata: {\"u\":{}}\n\n\r\n"
	const kept = len(event) / 8 * 8
	if _, err := io.WriteString(l.server, event); err != nil {
		return "", fmt.Errorf("server: %w", err)
	}
	if err := expect(l.client, event); err != nil {
		return "", err
	}
	if l.s.CatchUp(); len(told) != 1 || told[0] != event[len(event)-kept:] {
		return "", fmt.Errorf("the agent was given %q of an event that was redirected", told)
	}
	return "a usage went from the server to the client, and the agent was given it", l.finish(r)
}

// slow sends more than the credit to a client that does not read yet: the server's
// socket must stay writable, and the rest must come to the agent.
func (l *loop) slow(context.Context) (string, error) {
	r, err := l.begin(loopChunk(0, 4), word{})
	if err != nil {
		return "", err
	}
	r.Flushed(l.body())
	before, err := l.flow()
	if err != nil {
		return "", err
	}
	const size = 4000
	n := int(l.s.p.Credit)/size + 10
	for i := range n {
		if _, err := io.WriteString(l.server, loopChunk(i, size)); err != nil {
			return "", fmt.Errorf("server: %w", err)
		}
	}
	after, err := l.flow()
	if err != nil {
		return "", err
	}
	redirected := int(after.Chunks - before.Chunks)
	if redirected == 0 || redirected >= n {
		return "", fmt.Errorf("%d of %d chunks were redirected: the credit does not hold", redirected, n)
	}
	relayed := make(chan error, 1)
	go func() { relayed <- l.relay((n - redirected) * len(loopChunk(0, size))) }()
	for i := range n {
		if err := expect(l.client, loopChunk(i, size)); err != nil {
			return "", err
		}
	}
	if err := <-relayed; err != nil {
		return "", fmt.Errorf("agent: %w", err)
	}
	return fmt.Sprintf("after %d of %d chunks the agent took over", redirected, n), l.finish(r)
}

// fionread looks whether a member socket still tells how much can be read. Kernels
// that answer 0 disturb programs that ask; model servers are not known to.
func (l *loop) fionread(context.Context) (string, error) {
	_, raw := rawTCP(l.server)
	if raw == nil {
		return "not a TCP socket", nil
	}
	if _, err := io.WriteString(l.backend, "12345"); err != nil {
		return "", err
	}
	var n int
	err := control(raw, func(fd int) error {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, 1000); err != nil {
			return err
		}
		var err error
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD by its Linux name
		return err
	})
	switch {
	case err != nil:
		return "", err
	case n == 5:
		return "claimed sockets report their unread bytes", nil
	}
	return fmt.Sprintf("fionread_quirk: a claimed socket reports %d of 5 unread bytes (kernel regression; harmless to servers that just read)", n), nil
}
