package pin

import "bytes"

// place is where the scanner stands in the document.
type place uint8

// The objects whose members can be stored ids, and where they are.
const (
	inTop          place = iota // the root object: a response, a conversation, an event
	inResponse                  // its "response"
	inConversation              // the "conversation" of either
	inError                     // the "error" of either
)

// mode is what the scanner expects next.
type mode uint8

const (
	modeRoot   mode = iota // the root value
	modeKey                // a key, or the end of the object
	modeInKey              // the rest of a key
	modeColon              // the colon behind a key
	modeValue              // a value
	modeAfter              // the comma behind a value, or the end of the object
	modeString             // the rest of a string that stays as it is
	modeSkip               // the rest of a container that stays as it is
	modeHold               // the rest of a string that may hold ids
	modeDone               // behind the root value
)

// role is what a member's value can be.
type role uint8

const (
	plain        role = iota
	id                // a string that is a stored id
	text              // a string that may speak of stored ids
	response          // an object with ids of its own
	conversation      // such an object, or a stored id
	failure           // an object with a text that may speak of stored ids, or that text
)

// shortString is how many bytes of a string are looked at one by one.
const shortString = 16

// idKeyMax is the longest key with a role.
const idKeyMax = len("previous_response_id")

// scanner passes one JSON text through and tags the ids in it. It keeps a few
// bytes of state and holds back at most one undecided id.
type scanner struct {
	stamp string
	topic bool // the root object is an error: its message speaks of ids
	tags  int  // ids tagged so far

	mode   mode
	role   role     // of the member at hand
	depth  int      // of containers in modeSkip
	quoted bool     // modeSkip stands in a string
	odd    bool     // the string so far ends in an odd number of backslashes; false outside strings
	nest   uint8    // own objects open
	places [3]place // of the own objects
	keyLen int      // idKeyMax+1: longer than any key with a role
	key    [idKeyMax]byte
	unit   unit // of the key
	hold   hold
}

// reset makes the scanner ready for another text.
func (s *scanner) reset(topic bool) {
	s.topic, s.mode, s.nest, s.depth, s.quoted, s.odd = topic, modeRoot, 0, 0, false, false
}

// holding says whether bytes are held back.
func (s *scanner) holding() bool { return s.mode == modeHold && s.hold.rawLen > 0 }

// scan passes src through.
func (s *scanner) scan(dst, src []byte) []byte {
	from := 0 // src[from:i] is not passed on yet; nothing in modeHold
	for i := 0; i < len(src); {
		switch s.mode {
		case modeDone:
			i = len(src)
		case modeString:
			var end bool
			if i, end = s.string(src, i); end {
				s.mode = modeAfter
				if s.nest == 0 {
					s.mode = modeDone
				}
			}
		case modeSkip:
			i = s.skip(src, i)
		case modeInKey:
			i = s.inKey(src, i)
		case modeHold:
			dst, i = s.held(dst, src, i)
			from = i
		default:
			s.token(src[i])
			i++
			if s.mode == modeHold {
				dst = append(dst, src[from:i]...)
				from = i
			}
		}
	}
	return append(dst, src[from:]...)
}

// token takes a byte between strings in an own object or before the root.
func (s *scanner) token(c byte) {
	switch {
	case c == '"':
		switch {
		case s.mode == modeKey:
			s.mode, s.keyLen, s.unit = modeInKey, 0, unit{}
		case s.mode == modeValue && (s.role == id || s.role == conversation):
			s.mode = modeHold
			s.hold.start(false)
		case s.mode == modeValue && (s.role == text || s.role == failure):
			s.mode = modeHold
			s.hold.start(true)
		default:
			s.mode = modeString
		}
	case c == '{' && (s.mode == modeRoot || s.mode == modeValue && s.role >= response):
		p := inTop
		switch {
		case s.mode == modeRoot:
		case s.role == response:
			p = inResponse
		case s.role == conversation:
			p = inConversation
		default:
			p = inError
		}
		s.places[s.nest] = p
		s.nest++
		s.mode = modeKey
	case c == '{' || c == '[':
		s.mode, s.depth, s.quoted = modeSkip, 1, false
	case c == '}' && s.nest > 0:
		s.nest--
		s.mode = modeAfter
		if s.nest == 0 {
			s.mode = modeDone
		}
	case c == ',' && s.nest > 0:
		s.mode = modeKey
	case c == ':' && s.mode == modeColon:
		s.mode = modeValue
	}
}

// string passes to the end of a string. It looks only at quotes and at the
// backslashes before them.
func (s *scanner) string(src []byte, i int) (next int, end bool) {
	start := i
	if !s.odd {
		// Most strings are shorter than a call of IndexByte is worth.
		for end := min(i+shortString, len(src)); i < end && src[i] != '\\'; i++ {
			if src[i] == '"' {
				return i + 1, true
			}
		}
	}
	for {
		q := bytes.IndexByte(src[i:], '"')
		if q < 0 {
			i = len(src)
		} else {
			i += q
		}
		n := backslashes(src[start:i])
		odd := n&1 == 1
		if n == i-start && s.odd {
			odd = !odd
		}
		if q < 0 {
			s.odd = odd
			return i, false
		}
		i++
		if !odd {
			s.odd = false
			return i, true
		}
		s.odd = false
	}
}

// structural are the bytes that skip has to look at outside strings.
var structural = [256]bool{'"': true, '{': true, '[': true, '}': true, ']': true}

// ending are the bytes that a string's fast path ends at.
var ending = [256]bool{'"': true, '\\': true}

// skip passes to the end of a container.
func (s *scanner) skip(src []byte, i int) int {
	for i < len(src) {
		if s.quoted {
			var end bool
			if i, end = s.string(src, i); !end {
				return i
			}
			s.quoted = false
			continue
		}
		for i < len(src) && !structural[src[i]] {
			i++
		}
		if i == len(src) {
			return i
		}
		c := src[i]
		i++
		switch c {
		case '"':
			// Most strings are short and lie in one piece: see string.
			end := i
			for end < len(src) && end < i+shortString && !ending[src[end]] {
				end++
			}
			if end < len(src) && src[end] == '"' {
				i = end + 1
				continue
			}
			s.quoted = true
		case '{', '[':
			s.depth++
		case '}', ']':
			if s.depth--; s.depth == 0 {
				s.mode = modeAfter
				if s.nest == 0 {
					s.mode = modeDone
				}
				return i
			}
		}
	}
	return i
}

// inKey reads a key.
func (s *scanner) inKey(src []byte, i int) int {
	if s.keyLen == 0 && s.unit.state == 0 {
		// Most keys have no escape and lie in one piece.
		for n, c := range src[i:] {
			if c == '"' {
				s.mode, s.role = modeColon, s.roleOf(src[i:i+n])
				return i + n + 1
			}
			if c == '\\' {
				break
			}
		}
	}
	for i < len(src) {
		c := src[i]
		i++
		if c == '"' && s.unit.state == 0 {
			s.mode, s.role = modeColon, plain
			if s.keyLen <= len(s.key) {
				s.role = s.roleOf(s.key[:s.keyLen])
			}
			return i
		}
		d, ok := s.unit.add(c)
		switch {
		case !ok:
		case s.keyLen < len(s.key):
			s.key[s.keyLen] = d
			s.keyLen++
		default:
			s.keyLen = len(s.key) + 1
		}
	}
	return i
}

// roleOf is the role of the member with the key.
func (s *scanner) roleOf(key []byte) role {
	p := s.places[s.nest-1]
	own := p == inTop || p == inResponse
	switch string(key) {
	case "id":
		if own || p == inConversation {
			return id
		}
	case "previous_response_id", "response_id", "conversation_id":
		if own {
			return id
		}
	case "conversation":
		if own {
			return conversation
		}
	case "response":
		if p == inTop {
			return response
		}
	case "error":
		if own {
			return failure
		}
	case "message", "detail":
		if p == inError || p == inTop && s.topic {
			return text
		}
	}
	return plain
}

// held feeds the string at hand to the hold.
func (s *scanner) held(dst, src []byte, i int) ([]byte, int) {
	var tagged, more bool
	for i < len(src) {
		c := src[i]
		if c == '"' && s.hold.unit.state == 0 {
			dst, tagged = s.hold.end(dst, s.stamp)
			s.count(tagged)
			s.mode = modeAfter
			return append(dst, c), i + 1
		}
		i++
		dst, tagged, more = s.hold.add(dst, c, s.stamp)
		s.count(tagged)
		if !more {
			s.mode = modeString
			return dst, i
		}
	}
	return dst, i
}

func (s *scanner) count(tagged bool) {
	if tagged {
		s.tags++
	}
}

// flush lets go of what is held, without a tag: its string was cut off.
func (s *scanner) flush(dst []byte) []byte {
	if !s.holding() {
		return dst
	}
	s.mode = modeString
	return s.hold.drop(dst, opaque)
}
