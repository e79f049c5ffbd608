package key

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, with the high bit of its byte, the first of eight bytes that
// is a quote, a backslash or a control character. Marks above the first may be
// false: a borrow can run upwards from a true one.
func special(x uint64) uint64 {
	low := x ^ lows*2 // the quote changes places with the space, below which are the others
	slash := x ^ lows*'\\'
	return ((low - lows*(' '+1)) | (slash - lows)) &^ x & highs
}

// plainEnd returns the position of the first quote, backslash or control
// character at or after i, or len(b).
func plainEnd(b []byte, i int) int {
	for i+8 <= len(b) {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// stepBytes is how much step copies: for what is short a copy of fixed length
// costs less than one of the right length.
const stepBytes = 16

func step(dst, src []byte) (first, second uint64) {
	d, s := (*[stepBytes]byte)(dst), (*[stepBytes]byte)(src)
	first, second = binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:])
	binary.LittleEndian.PutUint64(d[:8], first)
	binary.LittleEndian.PutUint64(d[8:], second)
	return first, second
}

// copyPlain copies b to dst up to the first quote, backslash or control
// character, and returns how much that is; less if b or dst ends within a step.
func copyPlain(dst, b []byte) (n int) {
	for len(b) >= stepBytes && len(dst) >= stepBytes {
		first, second := step(dst, b)
		m, more := special(first), special(second)
		if m|more != 0 {
			if m == 0 {
				m, n = more, n+8
			}
			return n + bits.TrailingZeros64(m)>>3
		}
		n += stepBytes
		b, dst = b[stepBytes:], dst[stepBytes:]
	}
	return n
}

// Where decode stopped.
type decoded uint8

const (
	decodedAll  decoded = iota // after the closing quote
	decodedPart                // dst is full
	decodedBad                 // not a JSON string
)

// decodeRoom is how many bytes of dst decode leaves unused at least.
const decodeRoom = 16

// decode writes the decoded content of a string from b[i:] to dst, until the
// closing quote or until less than decodeRoom of dst is left. Half a surrogate
// pair becomes U+FFFD, as in encoding/json. b must be UTF-8.
func decode(dst, b []byte, i int) (n, next int, how decoded) {
	for n+decodeRoom <= len(dst) {
		if i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			binary.LittleEndian.PutUint64(dst[n:], x)
			m := special(x)
			if m == 0 {
				n += 8
				i += 8
				continue
			}
			k := bits.TrailingZeros64(m) >> 3
			n += k
			i += k
		} else if i >= len(b) {
			return n, i, decodedBad
		}
		switch c := b[i]; {
		case c == '"':
			return n, i + 1, decodedAll
		case c == '\\':
			if i+1 >= len(b) {
				return n, i, decodedBad
			}
			if c = escapes[b[i+1]]; c != 0 {
				dst[n] = c
				n++
				i += 2
				continue
			}
			r, after := decodeUnicode(b, i)
			if after == bad {
				return n, i, decodedBad
			}
			i = after
			if r >= 0x800 && r <= 0xFFFF { // never half a pair here
				dst[n] = 0xE0 | byte(r>>12)
				dst[n+1] = 0x80 | byte(r>>6)&0x3F
				dst[n+2] = 0x80 | byte(r)&0x3F
				n += 3
				continue
			}
			n += utf8.EncodeRune(dst[n:], r)
		case c < ' ':
			return n, i, decodedBad
		default: // in the last seven bytes of b
			dst[n] = c
			n++
			i++
		}
	}
	return n, i, decodedPart
}

// escapes maps the letter of a two-byte escape to what it stands for.
var escapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/',
	'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// decodeUnicode decodes the \uXXXX or the surrogate pair at i.
func decodeUnicode(b []byte, i int) (rune, int) {
	r := unit(b, i)
	if r < 0 {
		return 0, bad
	}
	i += 6
	if !utf16.IsSurrogate(r) {
		return r, i
	}
	if pair := utf16.DecodeRune(r, unit(b, i)); pair != utf8.RuneError {
		return pair, i + 6
	}
	return utf8.RuneError, i
}

// unit returns the UTF-16 unit of the \uXXXX at i, or -1.
func unit(b []byte, i int) rune {
	if len(b)-i < 6 || b[i] != '\\' || b[i+1] != 'u' {
		return -1
	}
	digits := b[i+2 : i+6]
	u := hex[digits[0]]<<12 | hex[digits[1]]<<8 | hex[digits[2]]<<4 | hex[digits[3]]
	if u > 0xFFFF {
		return -1
	}
	return rune(u)
}

// hex maps a hexadecimal digit to its value and any other byte to more than
// four digits can make.
var hex = hexDigits()

func hexDigits() (t [256]uint32) {
	for i := range t {
		t[i] = 1 << 16
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = uint32(i)
	}
	for i, c := range []byte("ABCDEF") {
		t[c] = uint32(10 + i)
	}
	return t
}
