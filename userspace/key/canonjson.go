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
	out       [canonicalLimit + canonRoom]byte
	moved     [canonicalLimit + canonRoom]byte // members on their way into order
}

// canonRoom is how many bytes beyond the form may be written: the form of a
// value is no longer than the value, but copies go in steps.
const canonRoom = 2 * decodeRoom

// pair is one member in canonical form: name, colon and value are
// out[start:end].
type pair struct {
	lead              uint64 // the name's first eight bytes, padded with zeros: names compare fast
	start, colon, end int32
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
	return after, n + copy(c.out[n:], c.src[i:after])
}

// str is value for the string whose content starts at i.
func (c *canon) str(i, n int) (after, end int) {
	c.out[n] = markText
	n++
	size, after, how := decode(c.out[n:], c.src, i)
	if how != decodedAll {
		return bad, n
	}
	n += size
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
	first, mark, ordered := n, len(c.pairs), true
	for started := false; ; started = true {
		var more bool
		if i, more = separator(c.src, i, '}', started); !more {
			break
		}
		if c.src[i] != '"' {
			return bad, n
		}
		p := pair{start: int32(n)}
		if i, n = c.str(i+1, n); i == bad {
			return bad, n
		}
		if i = skipSpace(c.src, i); i >= len(c.src) || c.src[i] != ':' {
			return bad, n
		}
		p.lead, p.colon = lead(c.out[p.start+1:], n-int(p.start)-2), int32(n)
		c.out[n] = ':'
		if i, n = c.value(skipSpace(c.src, i+1), n+1, depth); i == bad {
			return bad, n
		}
		p.end = int32(n)
		if c.strip && c.marker(&p) {
			n = int(p.start)
			continue
		}
		if k := len(c.pairs); k > mark && ordered {
			ordered = c.compare(&c.pairs[k-1], &p) < 0
		}
		c.pairs = append(c.pairs, p)
		c.out[n] = ','
		n++
	}
	if len(c.pairs) > mark {
		n--
	}
	if !ordered {
		n = c.order(first, n, mark)
	}
	if c.strip {
		c.ephemeral = c.isEphemeral(mark)
	}
	c.pairs = c.pairs[:mark]
	c.out[n] = '}'
	return i, n + 1
}

// order sorts the members in out[first:n] by name, keeps the last of equal
// names, and returns the new end. Their pairs are pairs[mark:].
func (c *canon) order(first, n, mark int) int {
	pairs := c.pairs[mark:]
	if len(pairs) <= 12 {
		for i := 1; i < len(pairs); i++ {
			p := pairs[i]
			j := i
			for ; j > 0 && c.compare(&pairs[j-1], &p) > 0; j-- {
				pairs[j] = pairs[j-1]
			}
			pairs[j] = p
		}
	} else {
		slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(c.compare(&a, &b), cmp.Compare(a.start, b.start)) })
	}
	kept := 0
	for i := range pairs {
		if i == 0 || c.compare(&pairs[kept-1], &pairs[i]) != 0 {
			kept++
		}
		pairs[kept-1] = pairs[i]
	}
	c.pairs = c.pairs[:mark+kept]

	copy(c.moved[first:n], c.out[first:n])
	n = first
	for i := range pairs[:kept] {
		p := &pairs[i]
		from, size := int(p.start), int(p.end-p.start)
		if size > 4*decodeRoom {
			copy(c.out[n:], c.moved[from:p.end])
		} else { // most are short: whole steps cost less than the right length
			for k := 0; k < size; k += decodeRoom {
				*(*[decodeRoom]byte)(c.out[n+k:]) = *(*[decodeRoom]byte)(c.moved[from+k:])
			}
		}
		p.start, p.colon, p.end = int32(n), int32(n)+p.colon-p.start, int32(n+size)
		n += size
		c.out[n] = ','
		n++
	}
	return n - 1
}

// lead returns the first eight of the size bytes of a name, which out goes on
// behind, as a number that orders as they do, but for zeros at their end.
func lead(name []byte, size int) uint64 {
	return binary.BigEndian.Uint64(name) &^ (^uint64(0) >> (8 * uint(size)))
}

// compare orders two members by name.
func (c *canon) compare(a, b *pair) int {
	if a.lead != b.lead {
		return cmp.Compare(a.lead, b.lead)
	}
	return bytes.Compare(c.name(a), c.name(b))
}

func (c *canon) name(p *pair) []byte { return c.out[p.start+1 : p.colon-1] }

// marker tells a cache_control marker, whose value is null or an object of
// type "ephemeral", from a schema property that happens to have that name.
// The member's value is what was read last.
func (c *canon) marker(p *pair) bool {
	if string(c.name(p)) != "cache_control" {
		return false
	}
	kind := c.out[p.colon+1]
	return kind == 'n' || kind == '{' && c.ephemeral
}

// isEphemeral says that an object whose members are pairs[mark:] is of type
// "ephemeral".
func (c *canon) isEphemeral(mark int) bool {
	for i := range c.pairs[mark:] {
		p := &c.pairs[mark+i]
		if string(c.name(p)) == "type" {
			return string(c.out[p.colon+1:p.end]) == "\xFEephemeral\xFE"
		}
	}
	return false
}
