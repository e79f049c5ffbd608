package proxy

import (
	"crypto/tls"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"
)

func TestRequestHeader(t *testing.T) {
	base := http.Header{
		"Forwarded":         {`for=10.0.0.1;host="h:1";proto=http`},
		"X-Forwarded-For":   {"10.0.0.1"},
		"X-Forwarded-Proto": {"http"},
		"X-Forwarded-Host":  {"h:1"},
		"X-Request-Id":      {"id1"},
		"User-Agent":        {""},
	}
	for _, tc := range []struct {
		name   string
		in     http.Header
		remote string
		tls    bool
		want   http.Header // what differs from base; nil value = absent
	}{
		{"nothing", http.Header{}, "10.0.0.1:5", false, nil},
		{"end to end fields stay", http.Header{"Authorization": {"Bearer x"}, "Accept-Encoding": {"br"}, "X-A": {"1", "2"}, "User-Agent": {"u"}}, "10.0.0.1:5", false,
			http.Header{"Authorization": {"Bearer x"}, "Accept-Encoding": {"br"}, "X-A": {"1", "2"}, "User-Agent": {"u"}}},
		{"hop-by-hop fields go", http.Header{"Connection": {"close, X-Named", "x-other"}, "X-Named": {"1"}, "X-Other": {"2"}, "Keep-Alive": {"5"}, "Proxy-Authorization": {"s"}, "Upgrade": {"h2c"}, "Http2-Settings": {"x"}, "Te": {"gzip"}, "Expect": {"100-continue"}}, "10.0.0.1:5", false, nil},
		{"trailers are announced on", http.Header{"Te": {"trailers, deflate"}}, "10.0.0.1:5", false, http.Header{"Te": {"trailers"}}},
		{"lists are appended to, once (E5)", http.Header{"X-Forwarded-For": {"1.1.1.1", "2.2.2.2"}, "Forwarded": {"for=1.1.1.1"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"outer"}}, "10.0.0.1:5", false,
			http.Header{"X-Forwarded-For": {"1.1.1.1, 2.2.2.2, 10.0.0.1"}, "Forwarded": {`for=1.1.1.1, for=10.0.0.1;host="h:1";proto=http`}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"outer"}}},
		{"IPv6 over TLS", http.Header{}, "[2001:db8::1]:5", true,
			http.Header{"X-Forwarded-For": {"2001:db8::1"}, "Forwarded": {`for="[2001:db8::1]";host="h:1";proto=https`}, "X-Forwarded-Proto": {"https"}}},
		{"no address", http.Header{}, "", false, http.Header{"X-Forwarded-For": nil, "Forwarded": {`for=unknown;host="h:1";proto=http`}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &http.Request{Header: tc.in, RemoteAddr: tc.remote, Host: "h:1"}
			if tc.tls {
				r.TLS = &tls.ConnectionState{}
			}
			before := tc.in.Clone()
			got := requestHeader(r, "id1")
			want := base.Clone()
			maps.Copy(want, tc.want)
			maps.DeleteFunc(want, func(_ string, v []string) bool { return v == nil })
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			if !reflect.DeepEqual(tc.in, before) {
				t.Error("the client's own header was changed")
			}
		})
	}
}

// TestHeadersOnTheWire checks what a backend and a client really see.
func TestHeadersOnTheWire(t *testing.T) {
	g := newRig(t)
	var seen http.Header
	var host string
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		seen, host = r.Header.Clone(), r.Host
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-Stays", "1")
		w.Header()["Content-Type"] = nil
		_, _ = w.Write([]byte("<html>"))
	})
	resp, _ := g.post("/v1/chat/completions", chat("x"), "X-Request-Id", "mine", "Accept-Encoding", "gzip")
	if host == g.addr {
		t.Error("the backend got the agent's Host, not its own")
	}
	if seen.Get("X-Forwarded-Host") != g.addr || seen.Get("X-Request-Id") != "mine" || seen.Get("Accept-Encoding") != "gzip" {
		t.Errorf("backend saw %v", seen)
	}
	if h := resp.Header; h.Get("X-Hop") != "" || h.Get("Keep-Alive") != "" || h.Get("X-Stays") != "1" || h.Get("X-Request-Id") != "mine" || h.Get("Content-Type") != "" {
		t.Errorf("client saw %v", h)
	}
	resp, _ = g.post("/v1/chat/completions", chat("x"))
	if id := resp.Header.Get("X-Request-Id"); len(id) != 32 || id != seen.Get("X-Request-Id") {
		t.Errorf("made request id %q, backend saw %q", id, seen.Get("X-Request-Id"))
	}
	if slices.Contains(slices.Collect(maps.Keys(seen)), "User-Agent") && seen.Get("User-Agent") != "Go-http-client/1.1" {
		t.Errorf("user agent %q", seen.Get("User-Agent"))
	}
}
