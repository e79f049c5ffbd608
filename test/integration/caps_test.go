package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/maps"
)

// nobody is a user without any rights of its own.
const nobody = 65534

// asNobody makes a process one of nobody's, with the documented capabilities and no
// others.
func asNobody() *syscall.SysProcAttr {
	var caps []uintptr
	for _, c := range datapath.Capabilities() {
		caps = append(caps, uintptr(c.Bit))
	}
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
	if err := os.Chmod(fs, 0o755); err != nil {
		t.Fatal(err)
	}
	pins := filepath.Join(fs, "tautline")
	if err := errors.Join(os.Mkdir(pins, 0o700), os.Chown(pins, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	e := startEngine(t, newWatch())
	for range 2 { // the second one finds its own pins
		a := startAgent(t, pins, []string{e.addr()}, asNobody())
		if got, want := field(t, a, "CapEff:"), fmt.Sprintf("%016x", documented()); got != want {
			t.Errorf("the agent has capabilities %s, want %s", got, want)
		}
		wholes(t, a, e, 10)
		a.end()
	}
}

// TestWithoutCapabilities: the agent serves all the same, unspliced, and says why in its
// status, its log and a metric.
func TestWithoutCapabilities(t *testing.T) {
	t.Setenv("TAUTLINE_SPLICE_MODE", "auto")
	pins := filepath.Join(bpffs(t), "tautline")
	e := startEngine(t, newWatch())
	a := startAgent(t, pins, []string{e.addr()}, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}})
	const n, why = 5, "missing capabilities: CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON"
	st := exact(t, a, e, n)
	if s := st.Splice; s.State != "off" || s.Reason != why || s.Outcomes["ended/off"] != n {
		t.Errorf("status says %+v", s)
	}
	resp, err := http.Get(a.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if want := fmt.Sprintf("tautline_splice_on{reason=%q} 0\n", why); err != nil || !strings.Contains(string(page), want) {
		t.Errorf("metrics lack %s, %v", want, err)
	}
	http.DefaultClient.CloseIdleConnections()
	if text := a.log.String(); !strings.Contains(text, "splice off") || !strings.Contains(text, why) {
		t.Errorf("agent says %q", text)
	}
	a.end()
}

// TestPinsOfAnotherUser: an agent that may not use its pin path says so, not that
// the kernel forbids bpf.
func TestPinsOfAnotherUser(t *testing.T) {
	fs := bpffs(t)
	e := startEngine(t, newWatch())
	rooted := filepath.Join(fs, "rooted")
	startAgent(t, rooted, []string{e.addr()}, nil).end() // leaves root's pins
	if err := errors.Join(os.Chmod(fs, 0o755), os.Chmod(rooted, 0o755), os.Chmod(maps.Dir(rooted), 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, pins := range map[string]string{"root's directory": filepath.Join(fs, "none"), "root's pins": rooted} {
		t.Run(name, func(t *testing.T) {
			a := launch(t, pins, []string{e.addr()}, asNobody())
			if a.admin != "" {
				t.Fatal("the agent runs")
			}
			if text := a.log.String(); !strings.Contains(text, datapath.ErrPinDenied.Error()) {
				t.Errorf("agent says %q", text)
			}
		})
	}
}

func documented() (set uint64) {
	for _, c := range datapath.Capabilities() {
		set |= 1 << c.Bit
	}
	return set
}

// field reads one of /proc/PID/status.
func field(t *testing.T, a *agent, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), name)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
