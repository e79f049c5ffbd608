package maps

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
)

// Conn names a backend connection as its server sees it.
type Conn struct {
	Server netip.AddrPort
	Agent  netip.AddrPort
}

// Key returns the kernel's form of c. IPv4 and IPv4-mapped addresses give the same key.
func (c Conn) Key() bpf.ConnKey {
	return bpf.ConnKey{
		ServerAddr: c.Server.Addr().As16(),
		AgentAddr:  c.Agent.Addr().As16(),
		ServerPort: c.Server.Port(),
		AgentPort:  c.Agent.Port(),
	}
}

// ConnOf is the reverse of Key; mapped addresses come back as IPv4.
func ConnOf(k bpf.ConnKey) Conn {
	return Conn{
		Server: netip.AddrPortFrom(netip.AddrFrom16(k.ServerAddr).Unmap(), k.ServerPort),
		Agent:  netip.AddrPortFrom(netip.AddrFrom16(k.AgentAddr).Unmap(), k.AgentPort),
	}
}

// Announce marks the socket fd, before it connects, as a connection of this agent
// to a backend. The mark goes with the socket.
func (s *Set) Announce(fd uintptr, backend uint32) error {
	if s.m.Announced == nil {
		return errors.New("announce: map not open")
	}
	if err := s.hold(); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	defer s.asking.RUnlock()
	if err := s.m.Announced.Put(int32(fd), &bpf.Announcement{Backend: backend}); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	return nil
}

// Flow returns the state of a connection; false when there is none.
func (s *Set) Flow(key bpf.ConnKey) (bpf.Flow, bool, error) {
	if err := s.hold(); err != nil {
		return bpf.Flow{}, false, fmt.Errorf("look up flow: %w", err)
	}
	defer s.asking.RUnlock()
	var f bpf.Flow
	err := do(unix.BPF_MAP_LOOKUP_ELEM, s.m.Flows, &key, &f)
	if errors.Is(err, unix.ENOENT) {
		return bpf.Flow{}, false, nil
	}
	if err != nil {
		return bpf.Flow{}, false, fmt.Errorf("look up flow: %w", err)
	}
	return f, true, nil
}

// Forget takes a flow and any offer for it away and returns the flow's last state;
// false when there was none. From then on no message of it is redirected, save one
// whose verdict had been given already.
func (s *Set) Forget(key bpf.ConnKey) (bpf.Flow, bool, error) {
	if err := s.hold(); err != nil {
		return bpf.Flow{}, false, fmt.Errorf("forget flow: %w", err)
	}
	defer s.asking.RUnlock()
	err1 := s.disarm(key)
	var f bpf.Flow
	err := s.m.Flows.LookupAndDelete(&key, &f)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return bpf.Flow{}, false, err1
	}
	if err != nil {
		return bpf.Flow{}, false, errors.Join(fmt.Errorf("forget flow: %w", err), err1)
	}
	return f, true, err1
}

// Arm offers the kernel to splice from the arm's position on, instead of any
// offer before it.
func (s *Set) Arm(key bpf.ConnKey, a bpf.Arm) error {
	if err := s.hold(); err != nil {
		return fmt.Errorf("arm: %w", err)
	}
	defer s.asking.RUnlock()
	if err := do(unix.BPF_MAP_UPDATE_ELEM, s.m.Arms, &key, &a); err != nil {
		return fmt.Errorf("arm: %w", err)
	}
	return nil
}

// Disarm withdraws an offer that was not taken. None there is no error.
func (s *Set) Disarm(key bpf.ConnKey) error {
	if err := s.hold(); err != nil {
		return fmt.Errorf("disarm: %w", err)
	}
	defer s.asking.RUnlock()
	return s.disarm(key)
}

func (s *Set) disarm(key bpf.ConnKey) error {
	err := do[bpf.ConnKey, bpf.Arm](unix.BPF_MAP_DELETE_ELEM, s.m.Arms, &key, nil)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("disarm: %w", err)
	}
	return nil
}

// ErrBusy says that another owner of sockmaps holds a socket.
var ErrBusy = errors.New("socket has another owner")

// AddClient makes the socket fd, with that cookie, a possible target. The entry
// goes when the socket is closed. Adding it twice is no error.
//
// A socket whose own messages somebody else redirects (another agent on this node
// that has this one for a backend, a service mesh) is refused with ErrBusy, wrapped:
// what this agent writes to it need not arrive there, and cannot be accounted for.
func (s *Set) AddClient(cookie uint64, fd uintptr) error {
	if err := s.hold(); err != nil {
		return fmt.Errorf("add client socket: %w", err)
	}
	defer s.asking.RUnlock()
	if s.m.TrialSocks != nil {
		err := s.m.TrialSocks.Put(cookie, uint64(fd))
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("add client socket: %w", ErrBusy)
		}
		if err != nil {
			return fmt.Errorf("try client socket: %w", err)
		}
		if err := s.m.TrialSocks.Delete(cookie); err != nil {
			return fmt.Errorf("try client socket: %w", err)
		}
	}
	if err := s.m.ClientSocks.Put(cookie, uint64(fd)); err != nil {
		return fmt.Errorf("add client socket: %w", err)
	}
	return nil
}

// Flows calls f for each connection until f returns false. Entries that come or
// go meanwhile may be missed or seen twice.
func (s *Set) Flows(f func(Conn, bpf.Flow) bool) error {
	var k bpf.ConnKey
	var v bpf.Flow
	it := s.m.Flows.Iterate()
	for it.Next(&k, &v) {
		if !f(ConnOf(k), v) {
			return nil
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("list flows: %w", err)
	}
	return nil
}

// Arms calls f for each offer that has not been taken, as Flows does.
func (s *Set) Arms(f func(Conn, bpf.Arm) bool) error {
	var k bpf.ConnKey
	var v bpf.Arm
	it := s.m.Arms.Iterate()
	for it.Next(&k, &v) {
		if !f(ConnOf(k), v) {
			return nil
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("list arms: %w", err)
	}
	return nil
}

// Live counts the connections by state.
func (s *Set) Live() (map[bpf.FlowState]int, error) {
	n := make(map[bpf.FlowState]int)
	err := s.Flows(func(_ Conn, f bpf.Flow) bool {
		n[f.State]++
		return true
	})
	return n, err
}

// Sweep deletes every connection, offer and socket: what a predecessor that was
// killed has left. Nothing of this agent may be there yet. It returns how many
// connections there were.
func (s *Set) Sweep() (int, error) {
	n, err := sweep[bpf.ConnKey](s.m.Flows)
	_, err1 := sweep[bpf.ConnKey](s.m.Arms)
	_, err2 := sweep[bpf.ConnKey](s.m.ServerSocks)
	_, err3 := sweep[uint64](s.m.ClientSocks)
	return n, errors.Join(err, err1, err2, err3)
}

// sweep deletes all keys. It asks for the first key again and again, because a
// walk stumbles over the deletions; a key that cannot be deleted ends it.
func sweep[K any](m *ebpf.Map) (int, error) {
	for n := 0; ; n++ {
		var k K
		err := m.NextKey(nil, &k)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return n, nil
		}
		if err != nil {
			return n, fmt.Errorf("sweep %s: %w", m, err)
		}
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return n, fmt.Errorf("sweep %s: %w", m, err)
		}
	}
}
