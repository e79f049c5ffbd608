package maps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tautline/tautline/bpf"
)

// ErrUnknownMap says that Dump was asked for a map that there is not.
var ErrUnknownMap = errors.New("unknown map")

// Format says how Dump prints.
type Format string

// Formats of Dump.
const (
	Table Format = "table" // a heading and aligned columns
	JSON  Format = "json"  // an array of objects with the columns as members
)

// A sheet is what Dump prints: rows in the order of the columns.
type sheet struct {
	columns []string
	rows    [][]any
}

func (s *sheet) add(cells ...any) { s.rows = append(s.rows, cells) }

// Dumpable lists the names that Dump takes.
func Dumpable() []string { return bpf.Pinned() }

// Dump prints a map by its name: the same as "bpftool map dump pinned", with
// addresses, names and sums over the CPUs. It returns ErrUnknownMap, wrapped, for a
// name that is not in Dumpable.
func (s *Set) Dump(w io.Writer, name string, f Format) error {
	sh, err := s.sheet(name)
	if err != nil {
		return err
	}
	if f == JSON {
		return sh.json(w)
	}
	return sh.table(w)
}

func (s *Set) sheet(name string) (*sheet, error) {
	switch name {
	case bpf.TautlineMapBackends:
		return s.backendSheet()
	case bpf.TautlineMapFlows:
		return s.flowSheet()
	case bpf.TautlineMapArms:
		return s.armSheet()
	case bpf.TautlineMapServerSocks:
		return socketSheet(s.m.ServerSocks, []string{"server", "agent", "cookie"}, func(k bpf.ConnKey) []any {
			c := ConnOf(k)
			return []any{c.Server.String(), c.Agent.String()}
		})
	case bpf.TautlineMapClientSocks:
		return socketSheet(s.m.ClientSocks, []string{"key", "cookie"}, func(k uint64) []any { return []any{k} })
	case bpf.TautlineMapLatency:
		return s.latencySheet()
	case bpf.TautlineMapCounters:
		return s.counterSheet()
	case bpf.TautlineMapMeta:
		return s.metaSheet()
	}
	return nil, fmt.Errorf("%w %q (there are: %s)", ErrUnknownMap, name, strings.Join(Dumpable(), ", "))
}

func (s *Set) backendSheet() (*sheet, error) {
	rows, err := s.Backends()
	if err != nil {
		return nil, err
	}
	sh := &sheet{columns: []string{"id", "name", "address", "admitted", "measured", "queue", "inflight_requests", "inflight_tokens", "tau", "picks"}}
	for _, id := range sortedKeys(rows) {
		b := rows[id]
		sh.add(id, b.Name, b.Address, b.Admitted, b.Measured, b.Queue, b.InflightRequests, b.InflightTokens, b.Tau, b.Picks)
	}
	return sh, nil
}

func (s *Set) flowSheet() (*sheet, error) {
	sh := &sheet{columns: []string{"server", "agent", "backend", "state", "redirected_bytes", "redirected_chunks", "arms", "mode", "credit", "client_cookie", "server_netns"}}
	err := s.Flows(func(c Conn, f bpf.Flow) bool {
		sh.add(c.Server.String(), c.Agent.String(), f.Backend, f.State.String(), f.Redirected, f.Chunks, f.Arms, bpf.ArmMode(f.Mode).String(), f.Credit, f.ClientCookie, f.ServerNetns)
		return true
	})
	return sh, err
}

func (s *Set) armSheet() (*sheet, error) {
	sh := &sheet{columns: []string{"server", "agent", "position", "credit", "mode", "client_cookie"}}
	err := s.Arms(func(c Conn, a bpf.Arm) bool {
		sh.add(c.Server.String(), c.Agent.String(), a.Position, a.Credit, a.Mode.String(), a.ClientCookie)
		return true
	})
	return sh, err
}

// socketSheet lists a sockhash: the kernel gives a socket's cookie for its value.
func socketSheet[K any](m *ebpf.Map, columns []string, cells func(K) []any) (*sheet, error) {
	sh := &sheet{columns: columns}
	var k K
	var cookie uint64
	it := m.Iterate()
	for it.Next(&k, &cookie) {
		sh.add(append(cells(k), cookie)...)
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("list %s: %w", m, err)
	}
	return sh, nil
}

func (s *Set) latencySheet() (*sheet, error) {
	sh := &sheet{columns: []string{"backend", "chunks", "bytes", "gap_p50", "gap_p90", "gap_p99", "gap_mean"}}
	var ids []uint32
	var id uint32
	var cpus []bpf.Latency
	it := s.m.Latency.Iterate()
	for it.Next(&id, &cpus) {
		ids = append(ids, id)
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("list latency: %w", err)
	}
	slices.Sort(ids)
	for _, id := range ids {
		l, ok, err := s.Latency(id)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		var mean time.Duration
		if n := l.Count(); n > 0 {
			mean = l.Sum / time.Duration(n)
		}
		sh.add(id, l.Chunks, l.Bytes, l.Quantile(0.5).String(), l.Quantile(0.9).String(), l.Quantile(0.99).String(), mean.String())
	}
	return sh, nil
}

func (s *Set) counterSheet() (*sheet, error) {
	all, err := s.Counters()
	if err != nil {
		return nil, err
	}
	sh := &sheet{columns: []string{"reason", "events", "bytes"}}
	for r, c := range all {
		sh.add(bpf.Reason(r).String(), c.Events, c.Bytes)
	}
	return sh, nil
}

func (s *Set) metaSheet() (*sheet, error) {
	var m bpf.Meta
	if err := s.m.Meta.Lookup(uint32(0), &m); err != nil {
		return nil, fmt.Errorf("read meta: %w", err)
	}
	sh := &sheet{columns: []string{"version", "digest"}}
	sh.add(m.Version, fmt.Sprintf("%016x", m.Digest))
	return sh, nil
}

func (s *sheet) table(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString(strings.ToUpper(strings.Join(s.columns, "\t")) + "\n")
	for _, row := range s.rows {
		for i, cell := range row {
			if i > 0 {
				b.WriteByte('\t')
			}
			switch cell {
			case true:
				cell = "yes"
			case false:
				cell = "no"
			}
			fmt.Fprint(&b, cell)
		}
		b.WriteByte('\n')
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := tw.Write(b.Bytes()); err != nil {
		return err
	}
	return tw.Flush()
}

func (s *sheet) json(w io.Writer) error {
	rows := make([]map[string]any, len(s.rows))
	for i, row := range s.rows {
		rows[i] = make(map[string]any, len(row))
		for j, cell := range row {
			rows[i][s.columns[j]] = cell
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}

func sortedKeys[V any](m map[uint32]V) []uint32 {
	keys := make([]uint32, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
