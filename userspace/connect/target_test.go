package connect

import (
	"crypto/tls"
	"net/url"
	"slices"
	"testing"
)

func TestTarget(t *testing.T) {
	for _, tc := range []struct{ url, address, name string }{
		{"http://gpu-1", "gpu-1:80", ""},
		{"http://gpu-1:8000/v1", "gpu-1:8000", ""},
		{"https://gpu-1", "gpu-1:443", "gpu-1"},
		{"https://[::1]:8443", "[::1]:8443", "::1"},
		{"http://[fd00::2]", "[fd00::2]:80", ""},
	} {
		u, err := url.Parse(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := Address(u); got != tc.address {
			t.Errorf("%s: address %q, want %q", tc.url, got, tc.address)
		}
		c := TLS(u, nil)
		if (c != nil) != (tc.name != "") {
			t.Errorf("%s: TLS %t", tc.url, c != nil)
		}
		if c == nil {
			continue
		}
		if c.ServerName != tc.name || !slices.Equal(c.NextProtos, []string{"http/1.1"}) {
			t.Errorf("%s: %q, %q", tc.url, c.ServerName, c.NextProtos)
		}
		base := &tls.Config{ServerName: "other"}
		if c := TLS(u, base); c == base || c.ServerName != "other" || base.NextProtos != nil {
			t.Errorf("%s: the base was not copied, or not heeded", tc.url)
		}
	}
}
