package maps

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// A ring is one of the kernel's into which it writes without waking anybody. There may
// be one reader of it.
type ring struct {
	mu  sync.Mutex
	r   *ringbuf.Reader // nil: there is no ring, or it is closed
	rec ringbuf.Record
}

func (g *ring) open(m *ebpf.Map) error {
	if m == nil {
		return nil
	}
	r, err := ringbuf.NewReader(m)
	if err != nil {
		return fmt.Errorf("open %s: %w", m, err)
	}
	r.SetDeadline(time.Unix(1, 0)) // what is there, without waiting
	g.r = r
	return nil
}

func (g *ring) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.r == nil {
		return nil
	}
	err := g.r.Close()
	g.r = nil
	return err
}

// drain calls f with each record that has come since the last call; the bytes are f's
// until it returns. One call at a time. It costs no system call, but for the first
// record of all.
func (g *ring) drain(f func(record []byte) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.r == nil {
		return nil
	}
	// Not until ReadInto has nothing: that would ask the kernel each time.
	for g.r.AvailableBytes() > 0 {
		err := g.r.ReadInto(&g.rec)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err == nil {
			err = f(g.rec.RawSample)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
