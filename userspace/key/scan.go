package key

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// maxDepth is how many objects and arrays may be open at once. Deeper bodies
// are ReasonInvalid; no prompt that an engine accepts comes near.
const maxDepth = 512

// bad is the position returned where the text is not JSON.
const bad = -1

func skipSpace(b []byte, i int) int {
	const spaces = 1<<' ' | 1<<'\n' | 1<<'\t' | 1<<'\r'
	for i < len(b) && b[i] <= ' ' && spaces>>b[i]&1 == 1 {
		i++
	}
	return i
}

// skipString returns the position after the closing quote of the string whose
// content starts at i. It looks at quotes and backslashes only: what is inside
// is checked where it is read.
func skipString(b []byte, i int) int {
	for {
		// Word by word while strings are short or escapes are dense ...
		for stop := i + nearBytes; i < stop; {
			if i+8 > len(b) {
				return skipStringEnd(b, i)
			}
			x := binary.LittleEndian.Uint64(b[i:])
			quote, slash := x^lows*'"', x^lows*'\\'
			m := ((quote - lows) | (slash - lows)) &^ x & highs
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
			if b[i] == '"' {
				return i + 1
			}
			i += 2
			stop = i + nearBytes
		}
		if i > len(b) {
			return bad
		}
		// ... then from quote to quote.
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return bad
		}
		quote := i + n
		esc := quote
		for esc > i && b[esc-1] == '\\' {
			esc--
		}
		if i = quote + 1; (quote-esc)&1 == 0 {
			return i
		}
	}
}

// nearBytes is how far skipString looks before it takes a string for a long
// one.
const nearBytes = 32

// skipStringEnd is skipString in the last bytes of b.
func skipStringEnd(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
		i++
	}
	return bad
}

// skipValue returns the position after the value that starts at i, inside
// depth open containers. Scalars are checked; inside containers only strings
// and brackets are. What is long is noted in e unless that is nil.
func skipValue(b []byte, i, depth int, e *ends) int {
	if i >= len(b) {
		return bad
	}
	switch b[i] {
	case '"':
		after := skipString(b, i+1)
		if e != nil && after != bad {
			e.add(i, after)
		}
		return after
	case '{', '[':
		return skipContainer(b, i, depth, e)
	}
	return skipScalar(b, i)
}

// skipContainer skips an object or array without recursion: the kinds of the
// open brackets are kept as bits, so a body of brackets costs no stack. It
// looks at a block of bytes at a time, which begins outside strings.
func skipContainer(b []byte, i, depth int, e *ends) int {
	var objects [maxDepth / 64]uint64
	var noted [endsDepth]int
	var tail [blockBytes]byte
	level := 0
	for i < len(b) {
		block := &tail
		if i+blockBytes <= len(b) {
			block = (*[blockBytes]byte)(b[i:])
		} else {
			tail = [blockBytes]byte{}
			copy(tail[:], b[i:])
		}
		quotes, brackets, stop := marks(block)
		strings := between(quotes)
		for m := brackets &^ strings; m != 0; m &= m - 1 {
			at := bits.TrailingZeros64(m)
			switch c := block[at&(blockBytes-1)]; c {
			case '{', '[':
				if depth+level >= maxDepth {
					return bad
				}
				bit := uint64(1) << (level & 63)
				if c == '{' {
					objects[level>>6] |= bit
				} else {
					objects[level>>6] &^= bit
				}
				if e != nil && level < endsDepth {
					noted[level] = e.open(i + at)
				}
				level++
			case '}', ']':
				level--
				object := objects[level>>6]>>(level&63)&1 == 1
				if object != (c == '}') {
					return bad
				}
				if e != nil && level < endsDepth {
					e.close(noted[level], i+at+1)
				}
				if level == 0 {
					return i + at + 1
				}
			}
		}
		if strings>>63 == 0 {
			i += max(stop, 1)
			continue
		}
		// The last string goes on behind the block, or has an escape in it.
		start := i + 63 - bits.LeadingZeros64(quotes)
		if i = skipString(b, i+stop); i == bad {
			return bad
		}
		if e != nil {
			e.add(start, i)
		}
	}
	return bad
}

// skipScalar returns the position after a number, true, false or null.
func skipScalar(b []byte, i int) int {
	switch b[i] {
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return bad
	}
	return i + len(word)
}

func skipNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = skipDigits(b, i); i == bad {
		return bad
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i == bad {
			return bad
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i
}

// skipDigits skips one digit or more.
func skipDigits(b []byte, i int) int {
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return bad
	}
	return i
}
