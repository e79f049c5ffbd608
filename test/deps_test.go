// Package test holds what checks the house as a whole.
package test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tautline/tautline/"

// rooms says which of our packages each room may import. A room covers its
// subfolders unless they have a line of their own. What is not listed is refused.
var rooms = map[string][]string{
	"bpf":                {},
	"maps":               {"bpf"},
	"userspace/key":      {},
	"userspace/index":    {"userspace/key"},
	"userspace/load":     {"userspace/key"},
	"userspace/decide":   {"userspace/key", "userspace/index", "userspace/load"},
	"userspace/pin":      {},
	"userspace/poll":     {"userspace/connect", "userspace/load"},
	"userspace/connect":  {},
	"userspace/upstream": {},
	"userspace/proxy":    {"userspace/connect", "userspace/upstream", "userspace/key", "userspace/index", "userspace/load", "userspace/decide", "userspace/pin"},
	"userspace/splice":   {"bpf", "maps", "userspace/connect"},
	"agent/config":       {"userspace/key", "userspace/index", "userspace/load", "userspace/decide", "userspace/pin", "userspace/poll", "userspace/proxy", "userspace/splice"},
	"agent/datapath":     {"bpf", "maps"},
	"agent/telemetry":    {"maps", "userspace/load", "userspace/index", "userspace/decide", "userspace/poll", "userspace/proxy"},
	"agent/discover":     {"agent/config"},
	"agent":              {"agent", "bpf", "maps", "userspace"},
	"tools/quantile":     {},
	"tools/draw":         {},
	"tools/sim":          {"tools/draw", "tools/quantile", "userspace/key", "userspace/index", "userspace/load", "userspace/decide"},
	"tools/modelserver":  {"userspace/key"},
	"tools/calibrate":    {"tools/plan"},
	"tools/plan":         {},
	"tools/bench":        {"tools/draw", "tools/quantile"},
	"tools/demo":         {"tools/bench/load"},
	"cmd":                {"agent", "maps", "tools", "userspace"},
	"test":               {"agent", "bpf", "maps", "tools", "userspace", "cmd"},
}

// pure packages reach none of these, not even through others.
var pure = []string{"userspace/key", "userspace/index", "userspace/load", "userspace/decide", "tools/sim"}

var impure = []string{"net", "net/http", "os/exec", "github.com/cilium/ebpf", "github.com/spf13/viper", "github.com/prometheus/client_golang"}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", module+"...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("go list output: %v", err)
		}
		all = append(all, p)
	}
}

// room finds the longest listed prefix of a package's path.
func room(p string) (string, bool) {
	for d := p; d != "."; d = path.Dir(d) {
		if _, ok := rooms[d]; ok {
			return d, true
		}
	}
	return "", false
}

func within(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return p == d || strings.HasPrefix(p, d+"/") })
}

func TestImportRules(t *testing.T) {
	for _, p := range list(t) {
		self := strings.TrimPrefix(p.ImportPath, module)
		r, ok := room(self)
		if !ok {
			t.Errorf("%s stands in no room", self)
			continue
		}
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, module)
			if ours && !within(dep, rooms[r]) && !within(dep, []string{r}) {
				t.Errorf("%s imports %s, which %s may not", self, dep, r)
			}
		}
	}
}

func TestPurePackagesReachNoIO(t *testing.T) {
	for _, p := range list(t) {
		self := strings.TrimPrefix(p.ImportPath, module)
		if !within(self, pure) {
			continue
		}
		for _, dep := range p.Deps {
			if within(dep, impure) && !strings.HasPrefix(dep, "net/netip") && dep != "net/url" {
				t.Errorf("%s reaches %s", self, dep)
			}
		}
	}
}
