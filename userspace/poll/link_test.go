package poll

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestKeptConnectionThatWasClosed is not a failure: the backend closed it
// while the request was on its way, as uvicorn does.
func TestKeptConnectionThatWasClosed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan struct{}, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns <- struct{}{}
			for r := bufio.NewReader(c); ; {
				line, err := r.ReadString('\n')
				if err != nil {
					break
				}
				if line == "\r\n" { // promise to keep the connection, and close it
					_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(page), page)
					break
				}
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	x, ear := poller(t, fast(), "http://"+ln.Addr().String(), func(x *Target) { x.Models = []string{"m"} })
	for range 5 {
		if got := ear.next(t, func(told) bool { return true }); got.failed {
			t.Fatalf("a poll failed: %s", statusOf(x).Last)
		}
	}
	if len(conns) < 5 {
		t.Errorf("%d connections for 5 polls, want one each", len(conns))
	}
}

func TestHTTPSBackend(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			says(listing)(w, r)
			return
		}
		says(page)(w, r)
	}))
	t.Cleanup(s.Close)
	p := fast()
	x, ear := poller(t, p, s.URL)
	ear.next(t, failed) // its certificate is nobody's
	x.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	p.TLS = &tls.Config{RootCAs: pool}
	_, ear = poller(t, p, s.URL)
	ear.next(t, models)
	ear.next(t, observed)
}

func TestChunkedPageAcrossAnySplit(t *testing.T) {
	e := healthy(t)
	e.set("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		for _, b := range []byte(page) {
			_, _ = w.Write([]byte{b})
			w.(http.Flusher).Flush()
		}
	})
	_, ear := poller(t, fast(), e.URL)
	for range 2 {
		if got := ear.next(t, observed); got.sample.Waiting != 2 || got.sample.StartTime != 100 {
			t.Errorf("observed %+v", got.sample)
		}
	}
	if n := e.conns.Load(); n != 1 {
		t.Errorf("%d connections, want one that is kept", n)
	}
}

func TestRequestBytes(t *testing.T) {
	for base, want := range map[string][2]string{
		"http://h:8000":             {"GET /metrics HTTP/1.1\r\nHost: h:8000\r\n", "h:8000"},
		"http://h/":                 {"GET /metrics HTTP/1.1\r\nHost: h\r\n", "h:80"},
		"https://h/a b/?q=1#f":      {"GET /a%20b/metrics HTTP/1.1\r\nHost: h\r\n", "h:443"},
		"http://[::1]:9/x":          {"GET /x/metrics HTTP/1.1\r\nHost: [::1]:9\r\n", "[::1]:9"},
		"http://[::1]":              {"GET /metrics HTTP/1.1\r\nHost: [::1]\r\n", "[::1]:80"},
		"http://user:pass@h.test:1": {"GET /metrics HTTP/1.1\r\nHost: h.test:1\r\n", "h.test:1"},
	} {
		u, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		got := string(get(u, "/metrics", "*/*"))
		if !strings.HasPrefix(got, want[0]) || !strings.HasSuffix(got, "\r\n\r\n") {
			t.Errorf("%s: request %q, want %q first", base, got, want[0])
		}
		if has := strings.Contains(got, "Authorization: Basic "); has != (u.User != nil) {
			t.Errorf("%s: request %q", base, got)
		}
		if a := newLink(u, nil).address; a != want[1] {
			t.Errorf("%s: address %s, want %s", base, a, want[1])
		}
	}
}
