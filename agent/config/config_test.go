package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/userspace/decide"
)

func write(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "tautline.yaml")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDefaultsAreValidAndComplete(t *testing.T) {
	c, err := Load("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Routing.Policy != "sticky-until-saturated" || c.PrefixAffinity.Capacity != 16384 || c.PrefixAffinity.TTLSecs != 600 {
		t.Errorf("defaults read wrong: %+v", c)
	}
	// Every field has a default in the file, or the environment could not set it.
	v, err := withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range leaves(reflect.TypeOf(*c), "") {
		if !v.IsSet(name) {
			t.Errorf("%s has no line in defaults.yaml", name)
		}
	}
}

// leaves lists the dotted names of a struct's settings.
func leaves(t reflect.Type, prefix string) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := prefix + f.Tag.Get("mapstructure")
		if f.Type.Kind() == reflect.Struct {
			names = append(names, leaves(f.Type, name+".")...)
			continue
		}
		names = append(names, name)
	}
	return names
}

func TestPrecedence(t *testing.T) {
	p := write(t, "poll: {interval: 3s}\nrouting: {policy: priced}\nlisten: \":1\"\n")
	t.Setenv("TAUTLINE_POLL_INTERVAL", "4s")
	t.Setenv("TAUTLINE_ROUTING_PRICED_KAPPA", "3.5")
	c, err := Load(p, map[string]any{"listen": ":2"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Poll.Interval != 4*time.Second || c.Routing.Policy != "priced" || c.Listen != ":2" || c.Routing.Priced.Kappa != 3.5 {
		t.Errorf("file < environment < flags does not hold: %+v", c)
	}
}

func TestPricedSpreadTakesTheSettingsOfPriced(t *testing.T) {
	c, err := Load(write(t, "routing: {policy: priced-spread, priced: {kappa: 1.5}}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := c.Decide(); err != nil || p.Policy != decide.PricedSpread || p.Kappa != 1.5 || p.Cap != 16 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestHoldingIsOffUnlessAskedFor(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                                 0,
		"routing: {policy: priced-spread}": 0,
		"routing: {hold: 0s}":              0,
		"routing: {policy: priced-spread, hold: 90s}": 90 * time.Second,
	} {
		c, err := Load(write(t, text), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Proxy().Hold; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	t.Setenv("TAUTLINE_ROUTING_HOLD", "30s")
	if c, err := Load("", map[string]any{"routing.policy": "priced-spread"}); err != nil || c.Routing.Hold != 30*time.Second {
		t.Errorf("from the environment: %+v, %v", c, err)
	}
}

func TestBackendsAreCompleted(t *testing.T) {
	c, err := Load(write(t, "site: here\nbackends: [{url: \"http://127.0.0.1:1/\"}, {name: b, url: \"http://[::1]:2\", site: there}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Backend{
		{Name: "backend0", URL: "http://127.0.0.1:1", Site: "here"},
		{Name: "b", URL: "http://[::1]:2", Site: "there"},
	}
	if !reflect.DeepEqual(c.Backends, want) {
		t.Errorf("got %+v, want %+v", c.Backends, want)
	}
}

func TestErrorsNameTheSetting(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key":        {"poll: {intervall: 1s}", "intervall"},
		"unknown, empty":     {"routng: {}", "routng"},
		"unknown, null":      {"routing: {polcy: }", "routing.polcy"},
		"backend name":       {"backends: [{name: a/b, url: \"http://a:1\"}]", "backends[0].name"},
		"unknown list key":   {"backends: [{url: \"http://a:1\", nam: x}]", "nam"},
		"not yaml":           {"a: [", "tautline.yaml"},
		"site":               {"site: a.b", "site must be a DNS-1123 label"},
		"no unit":            {"poll: {interval: 5}", "poll.interval"},
		"window":             {"poll: {interval: 5s, window: 1s}", "window >= interval"},
		"policy":             {"routing: {policy: best}", "routing.policy"},
		"load":               {"routing: {load: cpu}", "routing.load"},
		"tau compare":        {"routing: {tau_compare: x}", "routing.tau_compare"},
		"retry 503":          {"routing: {retry_503: 9}", "routing.retry_503"},
		"hold":               {"routing: {policy: priced-spread, hold: -1s}", "routing.hold must not be negative, got -1s"},
		"hold, policy":       {"routing: {hold: 1m}", "routing.hold needs routing.policy: priced-spread, which knows when no backend has KV memory; got sticky-until-saturated"},
		"hold, no unit":      {"routing: {policy: priced-spread, hold: 60}", "routing.hold"},
		"threshold":          {"prefix_affinity: {threshold: 1.5}", "prefix_affinity.threshold must be in (0, 1], got 1.5"},
		"exploration":        {"prefix_affinity: {exploration: -1}", "prefix_affinity.exploration"},
		"ttl too long":       {"prefix_affinity: {ttl_secs: 99999999999}", "prefix_affinity.ttl_secs"},
		"capacity":           {"prefix_affinity: {capacity: 0}", "prefix_affinity.capacity"},
		"capacity tokens":    {"prefix_affinity: {capacity_tokens: many}", "prefix_affinity.capacity_tokens"},
		"count pending":      {"prefix_affinity: {count_pending: maybe}", "prefix_affinity.count_pending"},
		"backend url":        {"backends: [{url: \"gpu0:8000\"}]", "backends[0].url"},
		"backend port":       {"backends: [{url: \"http://gpu0:80000\"}]", "backends[0].url"},
		"backend port 0":     {"backends: [{url: \"http://gpu0:0\"}]", "backends[0].url"},
		"no address":         {"listen: \"\"", "listen must be"},
		"listen":             {"listen: \"8080\"", "listen must be"},
		"listen port":        {"listen: \":99999\"", "listen must be"},
		"listen, no port":    {"listen: \"127.0.0.1:\"", "listen must be"},
		"admin":              {"admin: \"localhost\"", "admin must be"},
		"backend path":       {"backends: [{url: \"http://gpu0/v1\"}]", "backends[0].url"},
		"backend twice":      {"backends: [{name: a, url: \"http://a:1\"}, {name: a, url: \"http://a:2\"}]", "named twice"},
		"engine":             {"backends: [{url: \"http://a:1\", engine: tgi}]", "backends[0].engine"},
		"half a certificate": {"tls: {cert_file: a}", "cert_file and key_file"},
		"splice mode":        {"splice: {mode: on!}", "splice.mode"},
		"request head":       {"timeouts: {request_head: 0s}", "timeouts.request_head"},
		"request body":       {"timeouts: {request_body: 0s}", "timeouts.request_body"},
		"keep alive":         {"timeouts: {keep_alive: -1s}", "timeouts.keep_alive"},
		"body memory":        {"body_memory_bytes: 1000", "body_memory_bytes"},
		"no host":            {"backends: [{url: \"http://:8000\"}]", "backends[0].url"},
		"model without name": {"backends: [{url: \"http://a:1\", models: [m, \"\"]}]", "backends[0].models[1]"},
		"allowed with query": {"allowed_paths: [\"/v1/models?x=1\"]", "allowed_paths"},
		"allowed, unescaped": {"allowed_paths: [\"/v1/m o\"]", "allowed_paths"},
		"credit":             {"splice: {credit_bytes: -1}", "splice.credit_bytes"},
		"credit wraps":       {"splice: {credit_bytes: 4295229440}", "splice.credit_bytes"},
		"yes is no number":   {"routing: {retry_503: true}", "routing.retry_503"},
		"no is no mode":      {"splice: {mode: false}", "got \"false\""},
		"longest body":       {"max_body_bytes: 1073741824", "body_memory_bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(write(t, tc.text), nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
	if _, err := Load("/nonexistent/t.yaml", nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("missing file: got %v", err)
	}
}

// TestWordsOfYAML: true and false are words of the settings, and of YAML.
func TestWordsOfYAML(t *testing.T) {
	for word, want := range map[string]decide.CountPending{"true": decide.PendingYes, "false": decide.PendingNo, "auto": decide.PendingAuto, "'true'": decide.PendingYes} {
		c, err := Load(write(t, "prefix_affinity: {enabled: true, count_pending: "+word+"}\npprof: false\ndebug_headers: true\n"), nil)
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		if p, err := c.Decide(); err != nil || p.CountPending != want || !c.PrefixAffinity.Enabled || c.Pprof || !c.DebugHeaders {
			t.Errorf("%s: %+v, %v", word, c, err)
		}
	}
}

func TestAddressesToListenAt(t *testing.T) {
	for _, addr := range []string{":8080", "127.0.0.1:0", "[::1]:8080", "localhost:8080", ":http"} {
		if _, err := Load("", map[string]any{"listen": addr, "admin": addr}); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if _, err := Load("", map[string]any{"admin": ""}); err != nil {
		t.Errorf("no admin listener: %v", err)
	}
}

func TestAllErrorsAreReported(t *testing.T) {
	_, err := Load(write(t, "site: A\nmax_body_bytes: 0\nlog: {level: loud}\n"), nil)
	for _, want := range []string{"site", "max_body_bytes", "log.level"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to name %s", err, want)
		}
	}
}
