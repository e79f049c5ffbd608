package maps_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/test/testutil"
)

func open(t *testing.T) *maps.Set {
	t.Helper()
	return testutil.MapSet(t, *load(t))
}

func load(t *testing.T) *bpf.TautlineMaps {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: creates BPF maps")
	}
	var m bpf.TautlineMaps
	spec, err := bpf.LoadTautline()
	if err != nil {
		t.Fatal(err)
	}
	spec.Programs = nil
	if err := spec.LoadAndAssign(&m, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return &m
}

// H14: which address and which port is whose; both forms of IPv4 are one.
func TestKey(t *testing.T) {
	a := netip.AddrPortFrom
	for name, tt := range map[string]struct{ c, back maps.Conn }{
		"IPv4": {
			c: maps.Conn{Server: netip.MustParseAddrPort("10.1.2.3:8000"), Agent: netip.MustParseAddrPort("10.4.5.6:40000")},
		},
		"mapped IPv4": {
			c:    maps.Conn{Server: netip.MustParseAddrPort("[::ffff:10.1.2.3]:8000"), Agent: netip.MustParseAddrPort("10.4.5.6:40000")},
			back: maps.Conn{Server: netip.MustParseAddrPort("10.1.2.3:8000"), Agent: netip.MustParseAddrPort("10.4.5.6:40000")},
		},
		"IPv6": {
			c: maps.Conn{Server: netip.MustParseAddrPort("[2001:db8::1]:8000"), Agent: netip.MustParseAddrPort("[2001:db8::2]:40000")},
		},
	} {
		want := tt.back
		if want == (maps.Conn{}) {
			want = tt.c
		}
		if got := maps.ConnOf(tt.c.Key()); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		swapped := maps.Conn{Server: a(tt.c.Agent.Addr(), tt.c.Agent.Port()), Agent: tt.c.Server}
		if swapped.Key() == tt.c.Key() {
			t.Errorf("%s: both directions have one key", name)
		}
	}
	k := maps.Conn{Server: netip.MustParseAddrPort("1.2.3.4:258"), Agent: netip.MustParseAddrPort("5.6.7.8:772")}.Key()
	if k.ServerPort != 258 || k.AgentPort != 772 || k.ServerAddr[15] != 4 || k.AgentAddr[12] != 5 || k.ServerAddr[10] != 0xff {
		t.Errorf("layout: %+v", k)
	}
}

func TestKeysDiffer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[bpf.ConnKey]maps.Conn{}
	for range 5000 {
		b := func() netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(r.IntN(3)), byte(r.IntN(3))}), uint16(r.IntN(300)))
		}
		c := maps.Conn{Server: b(), Agent: b()}
		if other, ok := seen[c.Key()]; ok && other != c {
			t.Fatalf("%v and %v have one key", c, other)
		}
		seen[c.Key()] = c
		if got := maps.ConnOf(c.Key()); got != c {
			t.Fatalf("%v comes back as %v", c, got)
		}
	}
}

func TestBackends(t *testing.T) {
	s := open(t)
	want := maps.Backend{
		Name: "gpu0", Address: "10.0.0.1:8000", Admitted: true, Measured: true,
		Queue: 7, InflightRequests: 3, InflightTokens: 12345, Tau: 286704, Picks: 99,
	}
	if err := s.PutBackend(3, want); err != nil {
		t.Fatal(err)
	}
	long := maps.Backend{Name: strings.Repeat("n", 100)}
	if err := s.PutBackend(1, long); err != nil {
		t.Fatal(err)
	}
	long.Name = long.Name[:63]
	got, err := s.Backends()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[3] != want || got[1] != long {
		t.Errorf("got %+v", got)
	}
	if l, ok, err := s.Latency(3); err != nil || !ok || l != (maps.Latency{}) {
		t.Errorf("latency row: %+v, %v, %v", l, ok, err)
	}
	for range 2 {
		if err := s.DeleteBackend(3); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := s.Latency(3); err != nil || ok {
		t.Errorf("latency row stays: %v, %v", ok, err)
	}
}

// Changing a backend's row does not lose its gaps.
func TestPutBackendKeepsLatency(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: creates BPF maps")
	}
	var m bpf.TautlineMaps
	spec, err := bpf.LoadTautline()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.LoadAndAssign(&m, nil); err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := testutil.MapSet(t, m)
	if err := s.PutBackend(0, maps.Backend{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	cpus := make([]bpf.Latency, ebpf.MustPossibleCPU())
	for i := range cpus {
		cpus[i].Chunks, cpus[i].Bytes, cpus[i].GapNs = 1, 10, 1000
		cpus[i].Gaps[20] = 1
	}
	if err := m.Latency.Put(uint32(0), cpus); err != nil {
		t.Fatal(err)
	}
	if err := s.PutBackend(0, maps.Backend{Name: "a", Queue: 1}); err != nil {
		t.Fatal(err)
	}
	n := uint64(len(cpus))
	l, ok, err := s.Latency(0)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if l.Chunks != n || l.Bytes != 10*n || l.Sum != time.Duration(1000*n) || l.Gaps[20] != n {
		t.Errorf("got %+v for %d CPUs", l, n)
	}
}

func TestQuantile(t *testing.T) {
	var l maps.Latency
	if q := l.Quantile(0.5); q != 0 {
		t.Errorf("without gaps: %v", q)
	}
	l.Gaps[10], l.Gaps[20] = 90, 10 // 1 to 2 us, 1 to 2 ms
	for q, want := range map[float64][2]time.Duration{
		-1: {1024, 1024}, 0: {1024, 1024}, 0.5: {1024, 2048}, 0.9: {1024, 2048},
		0.95: {1 << 20, 1 << 21}, 1: {1 << 20, 1 << 21}, 2: {1 << 20, 1 << 21},
	} {
		if got := l.Quantile(q); got < want[0] || got > want[1] {
			t.Errorf("quantile %v: %v, want %v to %v", q, got, want[0], want[1])
		}
	}
	last := time.Duration(0)
	for q := 0.0; q <= 1; q += 0.01 {
		if got := l.Quantile(q); got < last {
			t.Errorf("quantile %v: %v after %v", q, got, last)
		} else {
			last = got
		}
	}
}

func TestDump(t *testing.T) {
	s := open(t)
	if err := s.PutBackend(2, maps.Backend{Name: "gpu2", Address: "10.0.0.2:8000", Queue: 5}); err != nil {
		t.Fatal(err)
	}
	key := maps.Conn{Server: netip.MustParseAddrPort("10.0.0.2:8000"), Agent: netip.MustParseAddrPort("[2001:db8::1]:40000")}.Key()
	if err := s.Arm(key, bpf.Arm{Position: 77}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"backends": "gpu2", "arms": "[2001:db8::1]:40000", "flows": "STATE", "server_socks": "COOKIE",
		"client_socks": "COOKIE", "latency": "GAP_P99", "counters": "claim_mismatch", "meta": "VERSION",
	} {
		var table, js bytes.Buffer
		if err := s.Dump(&table, name, maps.Table); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(table.String(), want) {
			t.Errorf("%s: no %q in\n%s", name, want, table.String())
		}
		if err := s.Dump(&js, name, maps.JSON); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var rows []map[string]any
		if err := json.Unmarshal(js.Bytes(), &rows); err != nil || rows == nil {
			t.Errorf("%s: %v in %s", name, err, js.String())
		}
		if lines := strings.Count(table.String(), "\n"); lines != len(rows)+1 {
			t.Errorf("%s: %d lines for %d rows", name, lines, len(rows))
		}
	}
	if err := s.Dump(&bytes.Buffer{}, "nothing", maps.JSON); !errors.Is(err, maps.ErrUnknownMap) {
		t.Errorf("unknown map: %v", err)
	}
}

func TestDisarmAndForget(t *testing.T) {
	s := open(t)
	key := maps.Conn{Server: netip.MustParseAddrPort("10.0.0.2:8000"), Agent: netip.MustParseAddrPort("10.0.0.1:1")}.Key()
	if err := s.Disarm(key); err != nil {
		t.Errorf("nothing there: %v", err)
	}
	if _, ok, err := s.Forget(key); ok || err != nil {
		t.Errorf("nothing there: %v, %v", ok, err)
	}
	if _, ok, err := s.Flow(key); ok || err != nil {
		t.Errorf("nothing there: %v, %v", ok, err)
	}
	for _, p := range []uint32{1, 2} {
		if err := s.Arm(key, bpf.Arm{Position: p}); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	if err := s.Arms(func(c maps.Conn, a bpf.Arm) bool {
		n++
		if c.Key() != key || a.Position != 2 {
			t.Errorf("%v %+v", c, a)
		}
		return true
	}); err != nil || n != 1 {
		t.Errorf("%d arms, %v", n, err)
	}
	if n, err := s.Sweep(); err != nil || n != 0 {
		t.Errorf("swept %d flows, %v", n, err)
	}
	n = 0
	if err := s.Arms(func(maps.Conn, bpf.Arm) bool { n++; return true }); err != nil || n != 0 {
		t.Errorf("%d arms after the sweep, %v", n, err)
	}
}

// A connection may come to its end after the data path: what it asks of the maps then is
// refused, and never asked of whatever has got their descriptors.
func TestAfterClose(t *testing.T) {
	var key bpf.ConnKey
	for name, call := range map[string]func(*maps.Set) error{
		"announce": func(s *maps.Set) error {
			if err := s.Announce(0, 0); errors.Is(err, os.ErrClosed) {
				return err
			}
			return nil // standard input is no socket
		},
		"flow":   func(s *maps.Set) error { _, _, err := s.Flow(key); return err },
		"forget": func(s *maps.Set) error { _, _, err := s.Forget(key); return err },
		"arm":    func(s *maps.Set) error { return s.Arm(key, bpf.Arm{}) },
		"disarm": func(s *maps.Set) error { return s.Disarm(key) },
		"client": func(s *maps.Set) error {
			if err := s.AddClient(0, 0); errors.Is(err, os.ErrClosed) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := load(t)
			s, err := maps.New(*m)
			if err != nil {
				t.Fatal(err)
			}
			begun, ended := make(chan struct{}), make(chan error)
			go func() {
				err := call(s)
				for close(begun); err == nil; {
					err = call(s)
				}
				ended <- err
			}()
			<-begun
			if err := errors.Join(s.Close(), m.Close()); err != nil {
				t.Error(err)
			}
			select {
			case err := <-ended:
				if !errors.Is(err, os.ErrClosed) {
					t.Errorf("%v, want %v", err, os.ErrClosed)
				}
			case <-time.After(20 * time.Second):
				t.Error("goes on after the end")
			}
		})
	}
}

func TestOpenWithoutPins(t *testing.T) {
	if _, err := maps.Open(t.TempDir()); !errors.Is(err, maps.ErrNotPinned) {
		t.Errorf("got %v, want ErrNotPinned", err)
	}
}
