package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/bench/usage"
)

// TestMain lets the test binary stand in for routers.
func TestMain(m *testing.M) {
	switch os.Getenv("PEERS_TEST_AS") {
	case "agent":
		fakeAgent(os.Args[len(os.Args)-1])
	case "proxy":
		fakeProxy(os.Args[1], os.Args[2])
	default:
		os.Exit(m.Run())
	}
}

// fakeProxy forwards from listen to upstream.
func fakeProxy(listen, upstream string) {
	err := http.ListenAndServe(listen, httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream}))
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// fakeAgent obeys an agent's configuration as far as this package writes one.
func fakeAgent(config string) {
	text, err := os.ReadFile(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			fmt.Fprintln(os.Stderr, "no", pattern)
			os.Exit(1)
		}
		return string(m[1])
	}
	go fakeProxy(find(`(?m)^listen: "(.*)"`), find(`url: "http://([^"]*)"`))
	mode := find(`splice: {mode: (\w+)`)
	admin := http.NewServeMux()
	admin.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	admin.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		if mode == "required" {
			fmt.Fprint(w, metricsText)
		}
	})
	_ = http.ListenAndServe(find(`(?m)^admin: "(.*)"`), admin)
	os.Exit(1)
}

const metricsText = `# HELP tautline_spliced_bytes_total Bytes.
# TYPE tautline_spliced_bytes_total counter
tautline_spliced_bytes_total{backend="a"} 1.5e+03
tautline_spliced_bytes_total{backend="b"} 500
tautline_spliced_bytes_totally_else 7
tautline_splice_responses_total{reason="",result="spliced"} 30
tautline_splice_responses_total{reason="http10",result="passed"} 2
tautline_requests_total{backend="a",code="200"} 32
broken
`

func upstream(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"object":"list","data":[]}`)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func env(t *testing.T) Env {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return Env{Upstream: upstream(t), Dir: t.TempDir(), Conns: 16}
}

func kind(t *testing.T, name string) Kind {
	t.Helper()
	for _, k := range Kinds() {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("no kind %s", name)
	return Kind{}
}

// gone wants that neither a process of the peer lives nor anything listens.
func gone(t *testing.T, p *Peer) {
	t.Helper()
	if left := usage.Group(p.proc.pid()); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if c, err := net.Dial("tcp", p.Addr); err == nil {
		c.Close()
		t.Errorf("%s still listens", p.Addr)
	}
}

// TestNetHTTP: a request goes through net/http's own proxy, which ends with its context.
func TestNetHTTP(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer srv.Close()
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeNetHTTP(ctx, addr, strings.TrimPrefix(srv.URL, "http://")) }()
	var text []byte
	for range 500 { // until it listens
		var resp *http.Response
		if resp, err = http.Post("http://"+addr, "text/plain", strings.NewReader("hello")); err == nil {
			text, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestInstalledRouters(t *testing.T) {
	for _, name := range []string{"nginx", "nginx1", "haproxy", "haproxy1"} {
		t.Run(name, func(t *testing.T) {
			p, err := kind(t, name).Start(context.Background(), env(t))
			if errors.Is(err, ErrAbsent) {
				t.Skipf("%v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := answers(context.Background(), "http://"+p.Addr+"/v1/models"); err != nil {
				t.Error(err)
			}
			u, has, err := p.Usage()
			if err != nil || !has || u.CPU <= 0 || u.RSS <= 0 {
				t.Errorf("usage %+v, %t, %v", u, has, err)
			}
			if strings.HasPrefix(name, "nginx") && len(usage.Descendants(p.proc.pid())) == 0 {
				t.Error("nginx has no worker that is counted")
			}
			if _, ok, err := p.Spliced(context.Background()); ok || err != nil {
				t.Errorf("%s says what it splices: %v", name, err)
			}
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
			gone(t, p)
		})
	}
}

func TestDirect(t *testing.T) {
	e := env(t)
	p, err := kind(t, "direct").Start(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	if p.Addr != e.Upstream {
		t.Errorf("direct goes to %s, not %s", p.Addr, e.Upstream)
	}
	if _, has, err := p.Usage(); has || err != nil {
		t.Errorf("direct has a router: %t, %v", has, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestAgent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PEERS_TEST_AS", "agent")
	for mode, tells := range map[string]bool{"spliced": true, "unspliced": false} {
		e := env(t)
		e.Self = []string{self}
		p, err := kind(t, mode).Start(context.Background(), e)
		if err != nil {
			t.Fatal(err)
		}
		s, ok, err := p.Spliced(context.Background())
		if err != nil || ok != tells {
			t.Errorf("%s: tells %t, %v", mode, ok, err)
		}
		if tells && s.Bytes != 2000 {
			t.Errorf("%s: %g bytes", mode, s.Bytes)
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		gone(t, p)
		if _, err := os.Stat(fmt.Sprintf("/sys/fs/bpf/tautline-bench-%d", os.Getpid())); err == nil {
			t.Error("pins are left")
		}
	}
}

func TestSplicedIsReadFromMetrics(t *testing.T) {
	s, ok := parseSpliced(metricsText)
	if !ok || s.Bytes != 2000 || s.Responses["spliced"] != 30 || s.Responses["passed/http10"] != 2 || len(s.Responses) != 2 {
		t.Errorf("got %+v, %t", s, ok)
	}
	d := s.Sub(Spliced{Bytes: 500, Responses: map[string]float64{"spliced": 10, "passed/http10": 2}})
	if d.Bytes != 1500 || d.Responses["spliced"] != 20 || len(d.Responses) != 1 {
		t.Errorf("difference %+v", d)
	}
	if _, ok := parseSpliced("up 1\n"); ok {
		t.Error("metrics without a splice tell one")
	}
}

func TestCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PEERS_TEST_AS", "proxy")
	// The shell stays, as parent of the router and of a child that ignores SIGTERM.
	k, err := Command("own=(trap '' TERM; sleep 300) & '" + self + "' {listen} {upstream}; true")
	if err != nil {
		t.Fatal(err)
	}
	e := env(t)
	p, err := k.Start(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "own" {
		t.Errorf("called %q", p.Name)
	}
	if n := len(usage.Descendants(p.proc.pid())); n < 2 {
		t.Errorf("%d descendants, want the router and the sleeper", n)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	gone(t, p)
}

func TestBadCommands(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "name=COMMAND",
		"x":                     "name=COMMAND",
		"x= ":                   "name=COMMAND",
		"a b=run {listen}":      "name",
		"../x=run {listen}":     "name",
		"nginx=run {listen}":    "a path of its own",
		"x=run --to {upstream}": "{listen}",
	} {
		if _, err := Command(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func TestFailedStartSaysWhyAndLeavesNothing(t *testing.T) {
	k, err := Command("bad=sleep 300 & echo pid $!; echo no such option {listen} >&2; exit 7")
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Start(context.Background(), env(t))
	if err == nil || !strings.Contains(err.Error(), "no such option 127.0.0.1:") || !strings.Contains(err.Error(), "exit status 7") {
		t.Fatalf("got %v", err)
	}
	var pid int
	_, rest, _ := strings.Cut(err.Error(), "pid ")
	if _, err := fmt.Sscan(rest, &pid); err != nil {
		t.Fatalf("no pid in %q", rest)
	}
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(state), ") Z ") {
		t.Errorf("the child of a failed start lives: %s", state)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	k, err := Command("never=touch {dir}/began; sleep 300; : {listen}")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := env(t)
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(e.Dir, "never", "began")); err == nil {
				cancel()
				return
			}
		}
	}()
	if _, err := k.Start(ctx, e); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEndedRouterIsNoticed(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PEERS_TEST_AS", "proxy")
	k, err := Command("own=exec '" + self + "' {listen} {upstream}")
	if err != nil {
		t.Fatal(err)
	}
	p, err := k.Start(context.Background(), env(t))
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(p.proc.pid(), syscall.SIGKILL)
	<-p.proc.done
	if _, has, err := p.Usage(); !has || err == nil {
		t.Errorf("an ended router has usage: %t, %v", has, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestAbsentProgram(t *testing.T) {
	if _, err := lookup("no-such-router-anywhere"); !errors.Is(err, ErrAbsent) {
		t.Errorf("got %v", err)
	}
	if path, err := lookup("sh"); err != nil || !filepath.IsAbs(path) {
		t.Errorf("sh: %q, %v", path, err)
	}
}

func TestAnswersWantsA200(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	addr := upstream(t)
	if err := answers(context.Background(), "http://"+addr+"/else"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_, _ = io.WriteString(c, "garbage\r\n\r\n")
			c.Close()
		}
	}()
	if err := answers(context.Background(), "http://"+ln.Addr().String()+"/"); err == nil {
		t.Error("garbage is an answer")
	}
}
