package pin

// maxHeld is how many units of an id decide whether it is tagged already: the
// longest stamp and one byte more. maxUnit is the longest raw form of a unit.
const (
	maxHeld = prefixLen + maxStamp + 1
	maxUnit = len(`\u0000`)
)

// hold keeps back what may be a stored id until it is known whether and where
// the stamp goes. Its size is fixed.
type hold struct {
	unit   unit
	text   bool // ids are words in a text; else the whole string is one id
	word   bool // the last unit was part of a word, so no id can start here
	n      int  // decoded units held
	prefix int  // raw length of the prefix, once n reaches it
	rawLen int
	dec    [maxHeld]byte
	raw    [(maxHeld + 1) * maxUnit]byte
}

// start begins the content of a string.
func (h *hold) start(text bool) {
	h.unit, h.text, h.word, h.n, h.rawLen = unit{}, text, false, 0, 0
}

// add takes the next raw byte of the string. more says whether the string can
// still hold an id; if not, nothing is held any more.
func (h *hold) add(dst []byte, c byte, stamp string) (out []byte, tagged, more bool) {
	h.raw[h.rawLen] = c
	h.rawLen++
	d, ok := h.unit.add(c)
	if !ok {
		return dst, false, true
	}
	if h.n == 0 && h.word {
		return h.drop(dst, d), false, true
	}
	if h.n >= prefixLen && (!isIDByte(d) && h.text || h.n == maxHeld-1) {
		if h.n == maxHeld-1 {
			h.dec[h.n] = d
			h.n++
		}
		out, tagged = h.end(dst, stamp)
		h.word = isIDByte(d)
		return out, tagged, h.text
	}
	h.dec[h.n] = d
	h.n++
	switch {
	case h.n < prefixLen && (string(h.dec[:h.n]) == "resp_"[:h.n] || string(h.dec[:h.n]) == "conv_"[:h.n]):
	case h.n == prefixLen && hasPrefix(string(h.dec[:h.n])):
		h.prefix = h.rawLen
	case h.n <= prefixLen:
		return h.drop(dst, d), false, h.text
	}
	return dst, false, true
}

// drop lets go of what is held as it came; d is its last unit.
func (h *hold) drop(dst []byte, d byte) []byte {
	dst = append(dst, h.raw[:h.rawLen]...)
	h.word, h.n, h.rawLen = isIDByte(d), 0, 0
	return dst
}

// end lets go of what is held, with the stamp behind the prefix if it is an id
// that has no tag yet. In a text, a prefix needs a letter or digit behind it to
// be one.
func (h *hold) end(dst []byte, stamp string) (out []byte, tagged bool) {
	if h.n > prefixLen && (!h.text || isAlnum(h.dec[prefixLen])) {
		_, already := Parse(string(h.dec[:h.n]))
		tagged = !already
	}
	if tagged {
		dst = append(dst, h.raw[:h.prefix]...)
		dst = append(dst, stamp...)
		dst = append(dst, h.raw[h.prefix:h.rawLen]...)
	} else {
		dst = append(dst, h.raw[:h.rawLen]...)
	}
	h.n, h.rawLen = 0, 0
	return dst, tagged
}

// isIDByte says whether c goes on a word that may be an id.
func isIDByte(c byte) bool { return isAlnum(c) || c == '_' || c == '-' || c == '.' }

func isAlnum(c byte) bool { return isLower(c|0x20) || isDigit(c) }
