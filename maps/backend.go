package maps

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
)

// Backend is a row of the routing table as the agent believes it.
type Backend struct {
	Name             string `json:"name"`    // cut to 63 bytes in the map
	Address          string `json:"address"` // likewise
	Admitted         bool   `json:"admitted"`
	Measured         bool   `json:"measured"`          // false: Queue means nothing
	Queue            uint32 `json:"queue"`             // windowed worst depth
	InflightRequests uint64 `json:"inflight_requests"` // sent, not finished
	InflightTokens   uint64 `json:"inflight_tokens"`   // uncached prompt tokens under way
	Tau              uint64 `json:"tau"`               // tokens
	Picks            uint64 `json:"picks"`
}

// row is the kernel's form of b; backendOf is the way back.
func (b Backend) row() bpf.Backend {
	r := bpf.Backend{
		InflightTokens: b.InflightTokens, InflightRequests: b.InflightRequests,
		Tau: b.Tau, Picks: b.Picks, Queue: b.Queue,
		Admitted: bit(b.Admitted), Measured: bit(b.Measured),
	}
	bpf.PutText(r.Name[:], b.Name)
	bpf.PutText(r.Address[:], b.Address)
	return r
}

func backendOf(r bpf.Backend) Backend {
	return Backend{
		Name: bpf.Text(r.Name[:]), Address: bpf.Text(r.Address[:]),
		Admitted: r.Admitted != 0, Measured: r.Measured != 0,
		Queue: r.Queue, InflightRequests: r.InflightRequests, InflightTokens: r.InflightTokens,
		Tau: r.Tau, Picks: r.Picks,
	}
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// PutBackend writes a backend's row, and makes its row of chunk gaps where there
// is none yet: without that the kernel does not count gaps of this backend.
func (s *Set) PutBackend(id uint32, b Backend) error {
	if err := s.m.Backends.Put(id, b.row()); err != nil {
		return fmt.Errorf("write backend %d: %w", id, err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	err = s.m.Latency.Update(id, make([]bpf.Latency, cpus), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("make latency row %d: %w", id, err)
	}
	return nil
}

// DeleteBackend removes a backend's rows; its chunk gaps are forgotten, for the
// number may be given to another. None there is no error.
func (s *Set) DeleteBackend(id uint32) error {
	var errs []error
	for _, m := range []*ebpf.Map{s.m.Backends, s.m.Latency} {
		if err := m.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("delete backend %d: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// ForgetBackends removes the rows of all backends: what a predecessor believed, and
// its chunk gaps, whose numbers now belong to others.
func (s *Set) ForgetBackends() error {
	_, err1 := sweep[uint32](s.m.Backends)
	_, err2 := sweep[uint32](s.m.Latency)
	return errors.Join(err1, err2)
}

// Backends returns the routing table by backend number.
func (s *Set) Backends() (map[uint32]Backend, error) {
	rows := make(map[uint32]Backend)
	var id uint32
	var row bpf.Backend
	it := s.m.Backends.Iterate()
	for it.Next(&id, &row) {
		rows[id] = backendOf(row)
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("list backends: %w", err)
	}
	return rows, nil
}
