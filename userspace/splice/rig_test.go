package splice_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/userspace/pin"
	"github.com/tautline/tautline/userspace/splice"
)

// needRoot skips where programs cannot be loaded.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
}

// openDatapath loads the kernel side without pins.
func openDatapath(t testing.TB) *datapath.Datapath {
	t.Helper()
	needRoot(t)
	d, err := datapath.Open(datapath.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// A rig is a small but whole agent: net/http's server and transport with the copy
// loop that a Splicer wants.
type rig struct {
	t    testing.TB
	set  *maps.Set
	s    *splice.Splicer
	addr string // of the agent
	srv  *http.Server
	tr   *http.Transport

	mu     sync.Mutex
	client net.Conn // the last one that came

	dialVia   func(dial func() error) error        // runs the dial elsewhere; nil: here
	unspliced bool                                 // the same loop, never armed
	early     bool                                 // armed behind heads that come alone
	firsts    atomic.Int64                         // told of
	usage     func(req *http.Request, seen string) // what was relayed and told of an answer that was read to its end; nil: not asked
	stamp     string                               // tags the ids of each answer; empty: byte for byte
}

func newRig(t testing.TB) *rig {
	return newRigWith(t, openDatapath(t).Maps(), splice.Default())
}

func newRigWith(t testing.TB, set *maps.Set, p splice.Params) *rig {
	t.Helper()
	r := &rig{t: t, set: set, s: splice.New(set, p)}
	if set != nil {
		if err := set.PutBackend(0, maps.Backend{Name: "engine", Admitted: true}); err != nil {
			t.Fatal(err)
		}
	}
	r.tr = &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
			dial := func() error {
				c, err = r.s.DialBackend(ctx, network, addr, 0)
				return err
			}
			if r.dialVia != nil {
				return c, r.dialVia(dial)
			}
			return c, dial()
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: 10000,
	}
	r.addr = r.listen("tcp4", "127.0.0.1:0")
	return r
}

// listen serves the agent at one more address.
func (r *rig) listen(network, addr string) string {
	r.t.Helper()
	ln, err := splice.ListenConfig().Listen(context.Background(), network, addr)
	if err != nil {
		r.t.Fatal(err)
	}
	srv := &http.Server{
		Handler: r,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			r.mu.Lock()
			r.client = c
			r.mu.Unlock()
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	r.srv = srv
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(r.s.WrapListener(ln))
	}()
	r.t.Cleanup(func() {
		_ = srv.Close()
		<-done
		r.tr.CloseIdleConnections()
	})
	return ln.Addr().String()
}

type connKey struct{}

// ServeHTTP is the reference of how a Splicer is used.
func (r *rig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var backend net.Conn
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { backend = i.Conn },
	})
	out := req.Clone(ctx)
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = "http", req.Host
	resp, err := r.tr.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	rc := http.NewResponseController(w)
	if rc.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
	client, _ := req.Context().Value(connKey{}).(net.Conn)
	info := splice.ResponseInfo{
		ClientHTTP11:   req.ProtoAtLeast(1, 1),
		ClientTLS:      req.TLS != nil,
		BackendChunked: len(resp.TransferEncoding) == 1 && resp.TransferEncoding[0] == "chunked",
		ClientChunked:  req.ProtoAtLeast(1, 1) && resp.ContentLength < 0,
		Rewritten:      r.unspliced || r.stamp != "",
		Deltas:         !r.unspliced,
	}
	if r.early {
		info.FirstToken = func(time.Duration) { r.firsts.Add(1) }
	}
	var mu sync.Mutex
	var seen []byte
	see := func(p []byte) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, p...)
	}
	if r.usage != nil {
		info.Usage = see
	}
	sr := r.s.Begin(client, backend, info)
	form := pin.FormNone
	if r.stamp != "" {
		form = pin.FormSSE
	}
	rw := pin.NewRewriter(r.stamp, form)
	var tagged []byte
	buf := make([]byte, 32<<10)
	var read int64
	for {
		if (read > 0 || r.early) && (r.stamp == "" || rw.AtBoundary()) {
			sr.Flushed(read)
		}
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if r.usage != nil {
				see(buf[:n])
			}
			tagged = rw.Append(tagged[:0], buf[:n])
			_, werr := w.Write(tagged)
			if werr == nil {
				werr = rc.Flush()
			}
			if werr != nil {
				sr.Abort()
				panic(http.ErrAbortHandler)
			}
			read += int64(n)
		}
		if errors.Is(err, io.EOF) {
			if sr.End() != nil {
				panic(http.ErrAbortHandler)
			}
			if r.usage != nil {
				r.usage(req, string(seen)) // no lock: nobody is told any more
			}
			return
		}
		if err != nil {
			sr.Abort()
			panic(http.ErrAbortHandler)
		}
	}
}

// counts reads the kernel's counters.
func (r *rig) counts() map[bpf.Reason]bpf.Counter {
	r.t.Helper()
	c, err := r.set.Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	m := make(map[bpf.Reason]bpf.Counter)
	for i, v := range c {
		m[bpf.Reason(i)] = v
	}
	return m
}

// ended returns how many responses ended with a result and reason.
func (r *rig) ended(res splice.Result, why splice.Reason) uint64 {
	var n uint64
	r.s.Counts(func(gotRes splice.Result, gotWhy splice.Reason, c uint64) {
		if gotRes == res && gotWhy == why {
			n = c
		}
	})
	return n
}

// An engine is a model server on raw sockets: each script decides which bytes go
// into which send.
type engine struct {
	addr string
	ln   net.Listener
	wg   sync.WaitGroup
}

// script answers one request. It returns false to close the connection.
type script func(c net.Conn, req *http.Request) bool

func newEngine(t testing.TB, f script) *engine {
	t.Helper()
	return newEngineOn(t, "tcp4", "127.0.0.1:0", f)
}

func newEngineOn(t testing.TB, network, addr string, f script) *engine {
	t.Helper()
	ln, err := splice.ListenConfig().Listen(context.Background(), network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return serveEngine(t, ln, f)
}

func serveEngine(t testing.TB, ln net.Listener, f script) *engine {
	e := &engine{addr: ln.Addr().String(), ln: ln}
	var mu sync.Mutex
	conns := make(map[net.Conn]bool)
	e.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[c] = true
			mu.Unlock()
			e.wg.Go(func() {
				defer c.Close()
				br := bufio.NewReader(c)
				for {
					req, err := http.ReadRequest(br)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					if !f(c, req) {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for c := range conns {
			c.Close()
		}
		mu.Unlock()
		e.wg.Wait()
	})
	return e
}

const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// chunk frames data as one chunk.
func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

const last = "0\r\n\r\n"

// send writes each message with a send of its own.
func send(c net.Conn, msgs ...string) bool {
	for _, m := range msgs {
		if _, err := io.WriteString(c, m); err != nil {
			return false
		}
	}
	return true
}
