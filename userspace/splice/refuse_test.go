package splice_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/userspace/splice"
)

// HTTP/1.0 clients and TLS listeners are served, by the agent alone.
func TestClientsThatAreNotSpliced(t *testing.T) {
	r := newRig(t)
	e := newEngine(t, stream("s", 20, 80))
	want := tokens("s", 20, 80)

	t.Run("HTTP/1.0", func(t *testing.T) {
		p := r.dial(t)
		_, _ = fmt.Fprintf(p, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", e.addr)
		same(t, p.answer(t), want)
		if n := r.ended(splice.Ended, splice.ClientProtocol); n != 1 {
			t.Errorf("%d counted, want 1", n)
		}
	})
	t.Run("TLS", func(t *testing.T) {
		srv := httptest.NewUnstartedServer(r)
		srv.Listener = r.s.WrapListener(srv.Listener)
		srv.StartTLS()
		defer srv.Close()
		req, err := http.NewRequest("GET", srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = e.addr
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its own test server
		defer client.CloseIdleConnections()
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		same(t, string(b), want)
		if n := r.ended(splice.Ended, splice.ClientTLS); n != 1 {
			t.Errorf("%d counted, want 1", n)
		}
	})
	if n := r.counts()[bpf.Redirected].Events; n != 0 {
		t.Errorf("%d chunks were redirected", n)
	}
}

// E35: clients and engines that speak multipath TCP. Our listener does not, so the
// client falls back and is spliced.
func TestMultipathTCP(t *testing.T) {
	r := newRig(t)
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	ln, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := serveEngine(t, ln, stream("s", 30, 80))

	var d net.Dialer
	d.SetMultipathTCP(true)
	c, err := d.DialContext(context.Background(), "tcp4", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p := &peer{TCPConn: c.(*net.TCPConn), br: bufio.NewReader(c)}
	p.ask(t, e, "/")
	same(t, p.answer(t), tokens("s", 30, 80))
	t.Logf("claims: %v", r.counts()[bpf.ClaimTaken].Events)
	if r.ended(splice.Damaged, splice.Spliced) != 0 {
		t.Error("damaged")
	}
}

// When off, nothing is wrapped and nothing is counted but that it is off.
func TestOff(t *testing.T) {
	s, k, st, err := splice.Start(t.Context(), splice.ModeOff, splice.Default(), func() (splice.Kernel, error) {
		t.Error("opened the kernel side")
		return nil, nil
	})
	if err != nil || k != nil || st.On || st.Reason == "" || s.On() {
		t.Fatal(s, k, st, err)
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if s.WrapListener(ln) != ln {
		t.Error("wrapped a listener")
	}
	c, err := s.DialBackend(t.Context(), "tcp4", ln.Addr().String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp := s.Begin(c, c, splice.ResponseInfo{ClientHTTP11: true, BackendChunked: true, ClientChunked: true})
	resp.Flushed(1)
	if err := resp.End(); err != nil {
		t.Error(err)
	}
	resp.Abort() // the second end counts nothing
	s.Counts(func(res splice.Result, why splice.Reason, n uint64) {
		want := uint64(0)
		if res == splice.Ended && why == splice.Off {
			want = 1
		}
		if n != want {
			t.Errorf("%s %s: %d, want %d", res, why, n, want)
		}
	})
}

// Without the kernel side auto runs unspliced and says why; required does not start.
func TestStartWithoutKernel(t *testing.T) {
	refuse := func() (splice.Kernel, error) { return nil, fmt.Errorf("missing capabilities: CAP_BPF") }
	s, k, st, err := splice.Start(t.Context(), splice.ModeAuto, splice.Default(), refuse)
	if err != nil || k != nil || s.On() || st.On || st.Reason != "missing capabilities: CAP_BPF" {
		t.Errorf("auto: %v %+v %v", k, st, err)
	}
	_, _, _, err = splice.Start(t.Context(), splice.ModeRequired, splice.Default(), refuse)
	if err == nil {
		t.Error("required: started")
	}
}

// A server outside of the cgroup that the program sees, as a remote one: the agent
// serves it alone.
func TestUnclaimedServer(t *testing.T) {
	needRoot(t)
	root, _, err := datapath.FindCgroup()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, "tautline-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	d, err := datapath.Open(datapath.Options{Cgroup: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // after the rig's connections
	r := newRigWith(t, d.Maps(), splice.Default())
	e := newEngine(t, stream("s", 10, 80))
	p := r.dial(t)
	p.ask(t, e, "/")
	same(t, p.answer(t), tokens("s", 10, 80))
	if n := r.ended(splice.Ended, splice.Unclaimed); n != 1 {
		t.Errorf("%d counted, want 1", n)
	}
	checks := splice.SelfTest(t.Context(), d.Maps(), splice.Default())
	if c := checks[len(checks)-1]; c.OK || c.Name != "claim" || c.Advice == "" {
		t.Errorf("self-test ends with %+v", c)
	}
}
