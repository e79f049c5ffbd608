package maps

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/tautline/tautline/bpf"
)

// Where the members of a bpf.UsageEnd lie.
const (
	usageSize  = unsafe.Offsetof(bpf.UsageEnd{}.Size)
	usageBytes = unsafe.Offsetof(bpf.UsageEnd{}.Words)
)

// UsageEnds calls f for each message that the kernel has passed since the last call and
// that may tell the usage, in order: the number that the response's arm had, and the end
// of the message, 1000 bytes at most, with its chunk framing. The bytes are f's until it
// returns. One call at a time; f must not call it. Where there is nothing to tell it costs
// no system call.
func (s *Set) UsageEnds(f func(response uint64, end []byte)) error {
	err := s.usages.drain(func(record []byte) error {
		if len(record) < int(usageBytes) {
			return fmt.Errorf("record of %d bytes", len(record))
		}
		size, bytes := binary.NativeEndian.Uint32(record[usageSize:]), record[usageBytes:]
		if uint64(size) > uint64(len(bytes)) {
			return fmt.Errorf("%d bytes in a record of %d", size, len(record))
		}
		f(binary.NativeEndian.Uint64(record), bytes[:size])
		return nil
	})
	if err != nil {
		return fmt.Errorf("read usages: %w", err)
	}
	return nil
}
