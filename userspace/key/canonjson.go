package key

import (
	"bytes"
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
// digits as sent. It parses into a flat list of nodes, so the cost stays
// n log n however the value is nested.
type canon struct {
	src   []byte
	text  []byte // decoded strings that had escapes
	nodes []node
	open  []int32 // children of the containers being parsed
	kids  []int32 // children of finished containers, each in one run
	out   []byte
	strip bool // drop cache_control markers
}

// node is one value. name and text are spans of src, or of text where
// decoded says so; a container's children are kids[start:end].
type node struct {
	start, end           int32
	nameStart, nameEnd   int32
	lead                 uint64 // the name's first eight bytes, padded with zeros: names compare fast
	kind                 byte   // first byte of the value
	decoded, nameDecoded bool
}

// value returns the canonical form of src, valid until the next call, or nil
// if src is not one JSON value. src must be UTF-8.
func (c *canon) value(src []byte, strip bool) []byte {
	c.src, c.strip = src, strip
	c.text, c.nodes, c.kids, c.out = c.text[:0], c.nodes[:0], c.kids[:0], c.out[:0]
	c.open = c.open[:0]
	root, end := c.parse(skipSpace(src, 0), 0)
	if end == bad || skipSpace(src, end) != len(src) {
		c.src = nil
		return nil
	}
	// No value is longer in canonical form than as sent.
	c.out = slices.Grow(c.out, len(src)+shortText)
	c.emit(root)
	c.src = nil
	return c.out
}

// parse adds the value at i and all below it, and returns its node and the
// position after it.
func (c *canon) parse(i, depth int) (int32, int) {
	if i >= len(c.src) {
		return 0, bad
	}
	id := int32(len(c.nodes))
	kind := c.src[i]
	c.nodes = append(c.nodes, node{kind: kind})
	switch kind {
	case '{', '[':
		if depth >= maxDepth {
			return 0, bad
		}
		mark := len(c.open)
		var end int
		if kind == '{' {
			end = c.members(i+1, depth+1)
		} else {
			end = c.elements(i+1, depth+1)
		}
		if end == bad {
			return 0, bad
		}
		children := c.open[mark:]
		if kind == '{' {
			children = c.sort(children)
		}
		n := &c.nodes[id]
		n.start = int32(len(c.kids))
		c.kids = append(c.kids, children...)
		n.end = int32(len(c.kids))
		c.open = c.open[:mark]
		return id, end
	case '"':
		start, stop, dec, end := c.str(i)
		n := &c.nodes[id]
		n.start, n.end, n.decoded = start, stop, dec
		return id, end
	}
	end := skipScalar(c.src, i)
	n := &c.nodes[id]
	n.start, n.end = int32(i), int32(end)
	return id, end
}

func (c *canon) members(i, depth int) int {
	for started := false; ; started = true {
		var more bool
		if i, more = separator(c.src, i, '}', started); !more {
			return i
		}
		if c.src[i] != '"' {
			return bad
		}
		start, stop, dec, end := c.str(i)
		if end == bad {
			return bad
		}
		i = skipSpace(c.src, end)
		if i >= len(c.src) || c.src[i] != ':' {
			return bad
		}
		var child int32
		if child, i = c.parse(skipSpace(c.src, i+1), depth); i == bad {
			return bad
		}
		n := &c.nodes[child]
		n.nameStart, n.nameEnd, n.nameDecoded = start, stop, dec
		n.lead = lead(c.name(child))
		if c.strip && string(c.name(child)) == "cache_control" && c.marker(child) {
			continue
		}
		c.open = append(c.open, child)
	}
}

func (c *canon) elements(i, depth int) int {
	for started := false; ; started = true {
		var more bool
		if i, more = separator(c.src, i, ']', started); !more {
			return i
		}
		var child int32
		if child, i = c.parse(i, depth); i == bad {
			return bad
		}
		c.open = append(c.open, child)
	}
}

// str returns the content of the string at i: a span of src, or of text when
// it had escapes.
func (c *canon) str(i int) (start, stop int32, dec bool, end int) {
	i++
	end = plainEnd(c.src, i)
	if end < len(c.src) && c.src[end] == '"' {
		return int32(i), int32(end), false, end + 1
	}
	end = skipString(c.src, i)
	if end == bad {
		return 0, 0, false, bad
	}
	from := len(c.text)
	c.text = slices.Grow(c.text, end-i+decodeRoom)
	n, next, how := decode(c.text[from:cap(c.text)], c.src, i)
	if how != decodedAll || next != end {
		return 0, 0, false, bad
	}
	c.text = c.text[:from+n]
	return int32(from), int32(from + n), true, end
}

// sort orders an object's members by name, in place, and keeps the last of
// equal names.
func (c *canon) sort(members []int32) []int32 {
	if len(members) < 2 {
		return members
	}
	if len(members) <= 12 {
		for i := 1; i < len(members); i++ {
			for j := i; j > 0 && c.compare(members[j-1], members[j]) > 0; j-- {
				members[j-1], members[j] = members[j], members[j-1]
			}
		}
	} else {
		slices.SortStableFunc(members, c.compare)
	}
	kept := members[:1]
	for _, m := range members[1:] {
		if c.compare(kept[len(kept)-1], m) == 0 {
			kept[len(kept)-1] = m
		} else {
			kept = append(kept, m)
		}
	}
	return kept
}

// lead returns the first eight bytes of a name as a number that orders as they
// do, but for zeros at their end.
func lead(name []byte) uint64 {
	if len(name) >= 8 {
		return binary.BigEndian.Uint64(name)
	}
	var n uint64
	for _, c := range name {
		n = n<<8 | uint64(c)
	}
	return n << (8 * (8 - len(name)) & 63)
}

// compare orders two members by name.
func (c *canon) compare(a, b int32) int {
	if x, y := c.nodes[a].lead, c.nodes[b].lead; x < y {
		return -1
	} else if x > y {
		return 1
	}
	return bytes.Compare(c.name(a), c.name(b))
}

func (c *canon) name(id int32) []byte {
	n := &c.nodes[id]
	if n.nameDecoded {
		return c.text[n.nameStart:n.nameEnd]
	}
	return c.src[n.nameStart:n.nameEnd]
}

func (c *canon) content(id int32) []byte {
	n := &c.nodes[id]
	if n.decoded {
		return c.text[n.start:n.end]
	}
	return c.src[n.start:n.end]
}

// marker tells the value of a cache_control marker, which is null or an object
// of type "ephemeral", from a schema property that happens to have that name.
func (c *canon) marker(id int32) bool {
	n := &c.nodes[id]
	if n.kind != '{' {
		return n.kind == 'n'
	}
	for _, kid := range c.kids[n.start:n.end] {
		if string(c.name(kid)) == "type" {
			return c.nodes[kid].kind == '"' && string(c.content(kid)) == "ephemeral"
		}
	}
	return false
}

func (c *canon) emit(id int32) {
	n := &c.nodes[id]
	switch n.kind {
	case '{':
		c.out = append(c.out, '{')
		for i, kid := range c.kids[n.start:n.end] {
			if i > 0 {
				c.out = append(c.out, ',')
			}
			k := &c.nodes[kid]
			c.quote(k.nameStart, k.nameEnd, k.nameDecoded)
			c.out = append(c.out, ':')
			c.emit(kid)
		}
		c.out = append(c.out, '}')
	case '[':
		c.out = append(c.out, '[')
		for i, kid := range c.kids[n.start:n.end] {
			if i > 0 {
				c.out = append(c.out, ',')
			}
			c.emit(kid)
		}
		c.out = append(c.out, ']')
	case '"':
		c.quote(n.start, n.end, n.decoded)
	default:
		c.out = append(c.out, c.content(id)...)
	}
}

// shortText is how many bytes quote copies at once, needed or not.
const shortText = 16

// quote appends a decoded string between its marks. Most strings are short: a
// copy of fixed length costs less than one of the right length.
func (c *canon) quote(start, end int32, dec bool) {
	from := c.src
	if dec {
		from = c.text
	}
	at := len(c.out)
	n := int(end - start)
	c.out = c.out[:at+n+2]
	c.out[at] = markText
	if room := c.out[at+1 : cap(c.out)]; n <= shortText && int(start)+shortText <= len(from) && len(room) >= shortText {
		copy(room[:shortText], from[start:start+shortText])
	} else {
		copy(room, from[start:end])
	}
	c.out[at+n+1] = markText
}
