package upstream

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
)

// What a request and its answer cost, server included, here and through net/http.
//
//	go test ./userspace/upstream -run '^$' -bench RoundTrip
func BenchmarkRoundTrip(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write(make([]byte, 300))
	})}
	go func() { _ = srv.Serve(ln) }()
	defer srv.Close()
	addr := ln.Addr().String()
	var d net.Dialer
	own := &Transport{Addr: addr, MaxHead: 1 << 20, Dial: d.DialContext}
	defer own.Close()
	std := &http.Transport{}
	defer std.CloseIdleConnections()
	for _, tc := range []struct {
		name string
		rt   http.RoundTripper
	}{{"upstream", own}, {"net-http", std}} {
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			text := bytes.Repeat([]byte("x"), 1000)
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://"+addr+"/", nil)
				if err != nil {
					b.Fatal(err)
				}
				r.Body, r.ContentLength = &memory{Reader: bytes.NewReader(text)}, int64(len(text))
				resp, err := tc.rt.RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 300 {
					b.Fatal(n, err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}
