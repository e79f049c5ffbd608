package maps

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
)

// FirstTokens calls f for each response whose first token the kernel has passed
// since the last call: the number that its arm had, and how long ago that was. One
// call at a time; f must not call it. Where there is nothing to tell it costs no
// system call.
func (s *Set) FirstTokens(f func(response uint64, ago time.Duration)) error {
	var now unix.Timespec // of the kernel's clock
	err := s.firsts.drain(func(record []byte) error {
		if now == (unix.Timespec{}) {
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
				return err
			}
		}
		var first bpf.FirstToken
		if _, err := binary.Decode(record, binary.NativeEndian, &first); err != nil {
			return err
		}
		f(first.Response, time.Duration(max(now.Nano()-int64(first.Ns), 0)))
		return nil
	})
	if err != nil {
		return fmt.Errorf("read first tokens: %w", err)
	}
	return nil
}
