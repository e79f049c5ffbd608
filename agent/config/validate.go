package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tautline/tautline/userspace/poll"
)

// dns1123 is a DNS-1123 label: site names go into ids, so they hold no period.
var dns1123 = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// backendName is what names a backend in metrics, status and the kernel's table. A
// slash stands there between the site and the name of another site's gateway.
var backendName = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._:]{0,62}$`)

// Validate reports every setting that cannot be used, each by its name.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	oneOf := func(name, val string, allowed ...string) {
		if !slices.Contains(allowed, val) {
			bad("%s must be one of %s, got %q", name, strings.Join(allowed, ", "), val)
		}
	}

	if !dns1123.MatchString(c.Site) {
		bad("site must be a DNS-1123 label, got %q", c.Site)
	}
	if err := listenable(c.Listen); err != nil {
		bad("listen must be an address and port, as in :8080, got %q: %v", c.Listen, err)
	}
	if err := listenable(c.Admin); c.Admin != "" && err != nil {
		bad("admin must be an address and port, as in 127.0.0.1:9901, or empty, got %q: %v", c.Admin, err)
	}
	if c.DrainTimeout < 0 {
		bad("drain_timeout must be >= 0, got %s", c.DrainTimeout)
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		bad("tls needs both cert_file and key_file")
	}
	if c.Poll.Interval <= 0 || c.Poll.Timeout <= 0 || c.Poll.Window < c.Poll.Interval {
		bad("poll needs interval > 0, timeout > 0 and window >= interval, got %s, %s, %s", c.Poll.Interval, c.Poll.Timeout, c.Poll.Window)
	}
	for name, d := range c.durations() {
		if d > 0 && d < time.Millisecond {
			bad("%s: %s is under a millisecond; a duration needs its unit, as in 30s", name, d)
		}
	}
	oneOf("splice.mode", c.Splice.Mode, "off", "auto", "required")
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "text", "json")
	if n := c.Splice.CreditBytes; n < 4096 || n > math.MaxUint32 {
		bad("splice.credit_bytes must be in [4096, %d], got %d", math.MaxUint32, n)
	}
	errs = append(errs, c.validateBackends()...)
	_, err := c.Decide()
	errs = append(errs, err)
	_, err = c.Index()
	errs = append(errs, err, c.Load().Validate(), c.Proxy().Validate())
	return errors.Join(errs...)
}

// listenable says what is wrong with an address to listen at, as far as its form goes.
func listenable(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "address "+addr+": "))
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return errors.New("no such port")
	}
	return nil
}

// portNumber tells whether a URL's port is one that can be connected to.
func portNumber(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func (c *Config) validateBackends() (errs []error) {
	seen := map[string]bool{}
	for i, b := range c.Backends {
		at := fmt.Sprintf("backends[%d]", i)
		u, err := url.Parse(b.URL)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s.url: %v", at, err))
		case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			errs = append(errs, fmt.Errorf("%s.url must be http://host:port or https://host:port, got %q", at, b.URL))
		case u.Port() != "" && !portNumber(u.Port()):
			errs = append(errs, fmt.Errorf("%s.url must have a port from 1 to 65535, got %q", at, b.URL))
		case u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.Path != "":
			errs = append(errs, fmt.Errorf("%s.url must have no path, query, fragment or user, got %q", at, b.URL))
		}
		if !backendName.MatchString(b.Name) {
			errs = append(errs, fmt.Errorf("%s.name must be 1 to 63 letters, digits, ., _, : or -, got %q", at, b.Name))
		}
		if !dns1123.MatchString(b.Site) {
			errs = append(errs, fmt.Errorf("%s.site must be a DNS-1123 label, got %q", at, b.Site))
		}
		if !slices.Contains([]string{"", poll.VLLM, poll.SGLang, poll.Tautline}, b.Engine) {
			errs = append(errs, fmt.Errorf("%s.engine must be vllm, sglang, tautline or empty, got %q", at, b.Engine))
		}
		for k, m := range b.Models {
			if m == "" {
				errs = append(errs, fmt.Errorf("%s.models[%d] is empty", at, k))
			}
		}
		id := b.Site + "/" + b.Name
		if seen[id] {
			errs = append(errs, fmt.Errorf("%s: %s is named twice", at, id))
		}
		seen[id] = true
	}
	return errs
}

// durations lists the settings that are times, by name.
func (c *Config) durations() map[string]time.Duration {
	return map[string]time.Duration{
		"drain_timeout":          c.DrainTimeout,
		"poll.interval":          c.Poll.Interval,
		"poll.timeout":           c.Poll.Timeout,
		"poll.window":            c.Poll.Window,
		"timeouts.connect":       c.Timeouts.Connect,
		"timeouts.request_head":  c.Timeouts.RequestHead,
		"timeouts.request_body":  c.Timeouts.RequestBody,
		"timeouts.keep_alive":    c.Timeouts.KeepAlive,
		"timeouts.response_head": c.Timeouts.ResponseHead,
		"timeouts.idle":          c.Timeouts.Idle,
		"routing.ttft_tolerance": c.Routing.TTFTTolerance,
		"routing.hold":           c.Routing.Hold,
	}
}
