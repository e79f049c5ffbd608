package integration

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tautline/tautline/agent/datapath"
)

// nobody is a user without any rights of its own.
const nobody = 65534

// asNobody makes a process one of nobody's, with these capabilities and no others.
func asNobody(caps []uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		AmbientCaps: caps,
	}
}

// TestUnprivilegedUser: with the documented capabilities, as a user who is not
// root, the whole agent starts, pins, splices and ends in order. The pin path must
// be a directory of this user's; nothing else is needed.
func TestUnprivilegedUser(t *testing.T) {
	fs := bpffs(t)
	pins := filepath.Join(fs, "tautline")
	for dir, mode := range map[string]os.FileMode{fs: 0o755, pins: 0o700} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(pins, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	var caps []uintptr
	for _, c := range datapath.Capabilities() {
		caps = append(caps, uintptr(c.Bit))
	}
	e := startEngine(t, newWatch())
	for range 2 { // the second one finds its own pins
		a := startAgent(t, pins, []string{e.addr()}, asNobody(caps))
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(a.cmd.Process.Pid), "status"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "CapEff:") || strings.HasPrefix(line, "Uid:") {
				t.Logf("agent: %s", strings.Join(strings.Fields(line), " "))
			}
		}
		c := &client{watched: e.watched, buf: make([]byte, 8<<10)}
		asked := uint64(0)
		for seed := rand.Uint64() >> 1; asked < 20; seed++ {
			p := newPlan(seed)
			if p.how != stays {
				continue
			}
			asked++
			if err := c.do(a.addr, p); err != nil {
				t.Fatal(err)
			}
		}
		c.leave()
		if st := a.idle(); st.Splice.Outcomes["ended/spliced"] < asked/2 {
			t.Errorf("responses ended %v", st.Splice.Outcomes)
		}
		a.end()
	}
}
