package key

import (
	"bytes"
	"encoding/binary"
)

// blockBytes is how many bytes are looked at together: one bit of a word each.
const blockBytes = 64

// marks returns a bit for each quote of a block, and one for each bracket; of
// the letters that look like brackets here none stands outside strings in
// JSON. Bytes from the first backslash on, at stop, are left out.
func marks(block *[blockBytes]byte) (quotes, brackets uint64, stop int) {
	for i := 0; i < blockBytes; i += 8 {
		x := binary.LittleEndian.Uint64(block[i:])
		quotes = quotes>>8 | gather(zeros(x^lows*'"'))
		// Or with 0x26 makes 0x7F of {, }, [ and ], and of Y, _, y and DEL.
		brackets = brackets>>8 | gather(zeros((x|lows*0x26)^lows*0x7F))
	}
	if stop = bytes.IndexByte(block[:], '\\'); stop < 0 {
		return quotes, brackets, blockBytes
	}
	before := uint64(1)<<stop - 1
	return quotes & before, brackets & before, stop
}

// zeros marks each byte of x that is 0 with its high bit.
func zeros(x uint64) uint64 {
	const rest = ^uint64(highs)
	return ^(x&rest + rest | x | rest)
}

// gather makes the high bits of eight bytes, with no other bits set, the top
// byte of a word, the first lowest.
func gather(marks uint64) uint64 { return marks * 0x0002040810204081 >> 56 << 56 }

// between returns a bit for each byte from an odd quote up to the next, or to
// the end if there is none.
func between(quotes uint64) uint64 {
	for n := 1; n < blockBytes; n *= 2 {
		quotes ^= quotes << n
	}
	return quotes
}
