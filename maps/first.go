package maps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
)

// firstTokens reads the ring of first tokens, of which there may be one reader.
type firstTokens struct {
	mu  sync.Mutex
	r   *ringbuf.Reader // nil: there is no ring, or it is closed
	rec ringbuf.Record
}

func (f *firstTokens) open(m *ebpf.Map) error {
	r, err := ringbuf.NewReader(m)
	if err != nil {
		return fmt.Errorf("open %s: %w", m, err)
	}
	r.SetDeadline(time.Unix(1, 0)) // what is there, without waiting
	f.r = r
	return nil
}

func (f *firstTokens) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.r == nil {
		return nil
	}
	err := f.r.Close()
	f.r = nil
	return err
}

// FirstTokens calls f for each response whose first token the kernel has passed
// since the last call: the number that its arm had, and how long ago that was. One
// call at a time; f must not call it. Where there is nothing to tell it costs no
// system call.
func (s *Set) FirstTokens(f func(response uint64, ago time.Duration)) error {
	s.firsts.mu.Lock()
	defer s.firsts.mu.Unlock()
	r := s.firsts.r
	if r == nil || r.AvailableBytes() == 0 {
		return nil
	}
	var now unix.Timespec // of the kernel's clock
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	for {
		err := r.ReadInto(&s.firsts.rec)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read first tokens: %w", err)
		}
		var first bpf.FirstToken
		if _, err := binary.Decode(s.firsts.rec.RawSample, binary.NativeEndian, &first); err != nil {
			return fmt.Errorf("read first tokens: %w", err)
		}
		f(first.Response, time.Duration(max(now.Nano()-int64(first.Ns), 0)))
	}
}
