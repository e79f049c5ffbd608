package key

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// Marks of the canonical form. None of these bytes occurs in UTF-8, so text
// needs no escaping and no length in front of it.
const (
	markField = 0xFF // begins a field: its tag follows
	markText  = 0xFE // stands for both quotes of a string in canonical JSON
	markLarge = 0xFD // a digest follows in place of a JSON value
)

// canonicalLimit is the longest JSON value, in bytes as sent, that counts in
// canonical form.
const canonicalLimit = 16 << 10

// canon turns one JSON value of at most canonicalLimit bytes into canonical
// form: compact, members sorted by the bytes of their decoded names, the last
// of equal names alone, strings decoded between two markText, numbers with the
// digits as sent.
//
// It writes while it reads, and puts an object's members in order when the
// object ends. So a byte moves once for each object around it that came out of
// order: at most maxDepth times, within memory that the processor has at hand.
type canon struct {
	src       []byte
	pairs     []pair // members of the objects being read, the innermost last
	strip     bool   // drop cache_control markers
	ephemeral bool   // the object read last is of type "ephemeral"
	out       canonText
	moved     canonText // members on their way into order
}

// canonText holds a form, which is no longer than its value, and room for what
// decode and step write in vain.
type canonText [canonicalLimit + 2*decodeRoom]byte

// pair is one member in canonical form: a name between its marks, a colon and
// a value, all in out[start:end].
type pair struct {
	lead       uint64 // the name's first eight bytes, padded with zeros: names compare fast
	start, end int32
}

// form returns the canonical form of src, valid until the next call, or nil if
// src is not one JSON value. src must be UTF-8 of at most canonicalLimit bytes.
func (c *canon) form(src []byte, strip bool) []byte {
	c.src, c.strip, c.pairs = src, strip, c.pairs[:0]
	i, n := c.value(skipSpace(src, 0), 0, 0)
	c.src = nil
	if i == bad || skipSpace(src, i) != len(src) {
		return nil
	}
	return c.out[:n]
}

// value reads the value at i and writes its form to out[n:]. It returns the
// position after either; the first is bad if this is not JSON.
func (c *canon) value(i, n, depth int) (after, end int) {
	if i >= len(c.src) {
		return bad, n
	}
	switch kind := c.src[i]; kind {
	case '"':
		return c.str(i+1, n)
	case '{', '[':
		if depth >= maxDepth {
			return bad, n
		}
		if kind == '{' {
			return c.object(i+1, n, depth+1)
		}
		return c.array(i+1, n, depth+1)
	}
	after = skipScalar(c.src, i)
	if after == bad {
		return bad, n
	}
	size := after - i
	if size <= stepBytes && i+stepBytes <= len(c.src) {
		step(c.out[n:], c.src[i:])
	} else {
		copy(c.out[n:], c.src[i:after])
	}
	return after, n + size
}

// str is value for the string whose content starts at i.
func (c *canon) str(i, n int) (after, end int) {
	c.out[n] = markText
	n++
	size := copyPlain(c.out[n:], c.src[i:])
	n += size
	if i += size; i < len(c.src) && c.src[i] == '"' {
		after = i + 1
	} else {
		var how decoded
		if size, after, how = decode(c.out[n:], c.src, i); how != decodedAll {
			return bad, n
		}
		n += size
	}
	c.out[n] = markText
	return after, n + 1
}

// array is value for the array whose elements start at i.
func (c *canon) array(i, n, depth int) (after, end int) {
	c.out[n] = '['
	n++
	for started := false; ; started = true {
		var more bool
		if i, more = separator(c.src, i, ']', started); !more {
			break
		}
		if started {
			c.out[n] = ','
			n++
		}
		if i, n = c.value(i, n, depth); i == bad {
			return bad, n
		}
	}
	c.out[n] = ']'
	return i, n + 1
}

// object is value for the object whose members start at i.
func (c *canon) object(i, n, depth int) (after, end int) {
	c.out[n] = '{'
	n++
	first, mark := n, len(c.pairs)
	ordered, ephemeral := true, false
	for started := false; ; started = true {
		var more bool
		if i, more = separator(c.src, i, '}', started); !more {
			break
		}
		if c.src[i] != '"' {
			return bad, n
		}
		start := n
		if i, n = c.str(i+1, n); i == bad {
			return bad, n
		}
		if i = skipSpace(c.src, i); i >= len(c.src) || c.src[i] != ':' {
			return bad, n
		}
		colon := n
		c.out[n] = ':'
		if i, n = c.value(skipSpace(c.src, i+1), n+1, depth); i == bad {
			return bad, n
		}
		if c.strip {
			name, value := c.out[start+1:colon-1], c.out[colon+1:n]
			if string(name) == "cache_control" && c.marker(value) {
				n = start
				continue
			}
			if string(name) == "type" {
				ephemeral = string(value) == "\xFEephemeral\xFE"
			}
		}
		p := pair{lead(c.out[start+1:], colon-start-2), int32(start), int32(n)}
		c.pairs = append(c.pairs, p)
		pairs := c.pairs[mark:]
		if k := len(pairs) - 1; k > 0 && compare(&c.out, pairs[k-1], p) >= 0 {
			ordered = false
			for ; k > 0 && k < insertMost && compare(&c.out, pairs[k-1], p) > 0; k-- {
				pairs[k] = pairs[k-1]
			}
			pairs[k] = p
		}
		c.out[n] = ','
		n++
	}
	if len(c.pairs) > mark {
		if !ordered {
			n = c.order(first, n, c.pairs[mark:])
		}
		n-- // the last comma
	}
	c.pairs, c.ephemeral = c.pairs[:mark], ephemeral
	c.out[n] = '}'
	return i, n + 1
}

// insertMost is how many members an object may have for each to be put into
// its place among those before it: with more, sorting costs less.
const insertMost = 12

// order puts the members in out[first:n], each with a comma behind it, into
// the order of their names, keeps the last of equal names, and returns the new
// end.
func (c *canon) order(first, n int, pairs []pair) int {
	copy(c.moved[first:n], c.out[first:n])
	if len(pairs) > insertMost {
		slices.SortFunc(pairs, func(a, b pair) int {
			return cmp.Or(compare(&c.moved, a, b), cmp.Compare(a.start, b.start))
		})
	}
	n = first
	for i, p := range pairs {
		if i+1 < len(pairs) && compare(&c.moved, p, pairs[i+1]) == 0 {
			continue
		}
		from, size := int(p.start), int(p.end-p.start)
		if size <= 4*stepBytes {
			for k := 0; k < size; k += stepBytes {
				step(c.out[n+k:], c.moved[from+k:])
			}
		} else {
			copy(c.out[n:], c.moved[from:from+size])
		}
		n += size
		c.out[n] = ','
		n++
	}
	return n
}

// lead returns the first eight of the size bytes of a name, behind which there
// is more, as a number that orders as they do, but for zeros at their end.
func lead(name []byte, size int) uint64 {
	return binary.BigEndian.Uint64(name) &^ (^uint64(0) >> (8 * uint(size)))
}

// compare orders two members in text by name.
func compare(text *canonText, a, b pair) int {
	if a.lead < b.lead {
		return -1
	}
	if a.lead > b.lead {
		return 1
	}
	return text.compareNames(a, b)
}

func (t *canonText) compareNames(a, b pair) int { return bytes.Compare(t.name(a), t.name(b)) }

func (t *canonText) name(p pair) []byte {
	name := t[p.start+1 : p.end]
	return name[:bytes.IndexByte(name, markText)]
}

// marker tells the value of a cache_control marker, which is null or an object
// of type "ephemeral", from a schema property that happens to have that name.
// It is what was read last.
func (c *canon) marker(value []byte) bool {
	return value[0] == 'n' || value[0] == '{' && c.ephemeral
}
