package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestTLS: with TLS connections are kept as well, and a stranger's certificate is
// refused.
func TestTLS(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer srv.Close()
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	var d net.Dialer
	g := &rig{T: t, t: &Transport{
		Addr: u.Host, MaxHead: 1 << 16, HandshakeTimeout: time.Minute,
		TLS: &tls.Config{RootCAs: roots, ServerName: "example.com"},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return d.DialContext(ctx, network, addr)
		},
	}}
	defer g.t.Close()
	var first net.Addr
	for range 3 {
		r, _ := g.post(1000)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if first == nil {
				first = i.Conn.LocalAddr()
			} else if first.String() != i.Conn.LocalAddr().String() {
				t.Error("another connection")
			}
		}})
		if _, text, err := g.read(r.WithContext(ctx)); err != nil || len(text) != 1000 {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
	}
	g.t.Close()
	g.t.TLS = &tls.Config{ServerName: "example.com"}
	r, m := g.post(10)
	if _, _, err := g.read(r); err == nil || !m.closed.Load() {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// joining sends what is written to it while it holds in one piece.
type joining struct {
	net.Conn
	hold bool
	held []byte
}

func (j *joining) Write(p []byte) (int, error) {
	if j.hold {
		j.held = append(j.held, p...)
		return len(p), nil
	}
	return j.Conn.Write(p)
}

// newTLSRig serves each connection over TLS.
func newTLSRig(t *testing.T, serve func(c net.Conn, br *bufio.Reader, n int)) *rig {
	t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS() // for its certificate
	defer srv.Close()
	server := &tls.Config{Certificates: srv.TLS.Certificates, DynamicRecordSizingDisabled: true}
	g := newRig(t, func(c net.Conn, _ *bufio.Reader, n int) {
		s := tls.Server(&joining{Conn: c}, server)
		serve(s, bufio.NewReader(s), n)
	})
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	g.t.TLS = &tls.Config{RootCAs: roots, ServerName: "example.com"}
	return g
}

// TestMoreThanTheAnswerByTLS: what came behind an answer and rests decrypted in the
// TLS connection, where the socket does not show it, is nobody's answer.
func TestMoreThanTheAnswerByTLS(t *testing.T) {
	const length = 8 << 10 // more than a buffer, less than a record
	want := strings.Repeat("x", length)
	for name, more := range map[string]string{"an answer": plain, "a farewell": ""} {
		t.Run(name, func(t *testing.T) {
			g := newTLSRig(t, func(c net.Conn, br *bufio.Reader, n int) {
				if _, err := http.ReadRequest(br); err != nil {
					return
				}
				secure := c.(*tls.Conn)
				j := secure.NetConn().(*joining)
				j.hold = true
				_, _ = io.WriteString(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s", length, want, more))
				if more == "" {
					_ = secure.CloseWrite()
				}
				_ = j.SetWriteDeadline(time.Time{}) // CloseWrite has let it pass
				_, _ = j.Conn.Write(j.held)
				j.hold = false
				_, _ = br.ReadByte()
			})
			for i := range 3 {
				resp, err := g.t.RoundTrip(g.request("POST", nil))
				if err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
				got := make([]byte, 2*length)
				n, err := io.ReadFull(resp.Body, got) // large reads go past the buffer
				if !errors.Is(err, io.ErrUnexpectedEOF) || string(got[:n]) != want {
					t.Fatalf("request %d: %d bytes, %v", i, n, err)
				}
			}
			if n := g.dials.Load(); n != 3 {
				t.Errorf("%d connections", n)
			}
		})
	}
}
