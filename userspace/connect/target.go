package connect

import (
	"crypto/tls"
	"net"
	"net/url"
	"time"
)

// IdleLimit is how long a connection to a backend may rest. Uvicorn closes idle
// connections after 5 s: ours must be gone before that, or a request meets a
// connection that is just being closed.
const IdleLimit = 4 * time.Second

// Address returns the host and port that the server of an http or https URL listens on.
func Address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		if port = "80"; u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// TLS returns the settings for HTTP/1.1 with the server of an https URL, nil for
// http. They are a copy of base, which may be nil.
func TLS(u *url.URL, base *tls.Config) *tls.Config {
	if u.Scheme != "https" {
		return nil
	}
	c := base.Clone()
	if c == nil {
		c = &tls.Config{}
	}
	if c.ServerName == "" {
		c.ServerName = u.Hostname()
	}
	c.NextProtos = []string{"http/1.1"}
	return c
}
