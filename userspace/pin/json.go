package pin

import (
	"bytes"
	"unicode/utf8"
)

// A unit is what one place of a JSON string decodes from: a plain byte or one
// escape. Bytes of longer UTF-8 sequences are units of their own, and a \u
// escape above ASCII decodes to opaque: ids and their tags are ASCII.
const opaque = 0xFF

// unit assembles units from bytes that come one at a time. The zero value is
// between units.
type unit struct {
	state uint8 // 0 between, 1 behind a backslash, 2..5 awaiting hex digits
	hex   uint16
}

// add takes the next raw byte of the string. It returns the decoded byte, with
// true, at the end of a unit. A malformed escape is opaque.
func (u *unit) add(c byte) (byte, bool) {
	switch u.state {
	case 0:
		if c == '\\' {
			u.state = 1
			return 0, false
		}
		return c, true
	case 1:
		if c == 'u' {
			u.state = 2 // the digits push older ones out of hex
			return 0, false
		}
		u.state = 0
		return unescaped(c), true
	}
	v := hexVal(c)
	if v == 16 {
		u.state = 0
		return opaque, true
	}
	u.hex = u.hex<<4 | uint16(v)
	if u.state++; u.state < 6 {
		return 0, false
	}
	u.state = 0
	if u.hex < utf8.RuneSelf {
		return byte(u.hex), true
	}
	return opaque, true
}

// unescaped is what a backslash and c stand for; opaque where JSON has no such
// escape.
func unescaped(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return opaque
}

// decodeID decodes a JSON string token, quotes included, as far as ids go: what
// is above ASCII stays as it is (plain) or becomes opaque (escaped).
func decodeID(token []byte) string {
	if len(token) < 2 || token[0] != '"' {
		return ""
	}
	s := token[1 : len(token)-1]
	if bytes.IndexByte(s, '\\') < 0 {
		return string(s)
	}
	var u unit
	dec := make([]byte, 0, len(s))
	for _, c := range s {
		if d, ok := u.add(c); ok {
			dec = append(dec, d)
		}
	}
	return string(dec)
}

// unitsEnd is the offset in the raw string content s behind its n-th unit.
func unitsEnd(s []byte, n int) int {
	var u unit
	for i, c := range s {
		if n == 0 {
			return i
		}
		if _, ok := u.add(c); ok {
			n--
		}
	}
	return len(s)
}

// stringEnd returns the offset behind the closing quote of the string whose
// content starts at i, or false where it does not end. It looks at quotes only,
// and at the backslashes before each.
func stringEnd(b []byte, i int) (int, bool) {
	start := i
	for {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			return len(b), false
		}
		i += q + 1
		if backslashes(b[start:i-1])&1 == 0 {
			return i, true
		}
	}
}

// backslashes counts the backslashes at the end of b.
func backslashes(b []byte) int {
	n := len(b)
	for n > 0 && b[n-1] == '\\' {
		n--
	}
	return len(b) - n
}
