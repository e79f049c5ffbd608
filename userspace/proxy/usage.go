package proxy

import (
	"bytes"
	"sync"
)

// Sizes of the windows in which usage is looked for. An answer's usage stands
// close to its end; the Messages API also tells the prompt's size in the first
// event of a stream.
const (
	tailBytes = 8 << 10
	headBytes = 2 << 10
)

// usage is what an engine says about the size of a request.
type usage struct {
	prompt     int // all prompt tokens, cached ones too
	cached     int // those of them that came from the prefix cache; -1 = it does not say
	completion int
}

// usageWindow keeps the beginning and the end of a body that passes by. It grows
// with what it sees: of a spliced stream that is little, and thousands are open. What
// it sees of one has gaps, and chunk framing before and behind whole events.
type usageWindow struct {
	mu   sync.Mutex
	head []byte // at most headBytes
	tail []byte // at most 2*tailBytes, of which the last tailBytes count
}

// reset forgets the body that was seen.
func (w *usageWindow) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.head, w.tail = w.head[:0], w.tail[:0]
}

// see takes the next bytes of the body. Any goroutine may call it.
func (w *usageWindow) see(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room := headBytes - len(w.head); room > 0 {
		w.head = append(w.head, p[:min(room, len(p))]...)
	}
	if len(p) >= tailBytes {
		w.tail = append(w.tail[:0], p[len(p)-tailBytes:]...)
		return
	}
	if len(w.tail)+len(p) > 2*tailBytes {
		n := copy(w.tail, w.tail[len(w.tail)-tailBytes:])
		w.tail = w.tail[:n]
	}
	w.tail = append(w.tail, p...)
}

// usage reads what the windows hold. The last usage object counts; what it
// leaves out is taken from the first one, as in a Messages stream.
func (w *usageWindow) usage() (usage, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := lastUsage(w.tail)
	if first, found := firstUsage(w.head); found {
		ok = true
		if last.prompt == 0 {
			last.prompt, last.cached = first.prompt, first.cached
		}
		last.completion = max(last.completion, first.completion)
	}
	return last, ok
}

// usageName is the member that is looked for.
const usageName = `"usage"`

// lastUsage parses the last readable usage object. The quotes make sure that it
// is no text of a message: inside a JSON string they would be escaped.
func lastUsage(b []byte) (usage, bool) {
	name := []byte(usageName)
	for end := len(b); ; {
		at := bytes.LastIndex(b[:end], name)
		if at < 0 {
			return usage{}, false
		}
		if u, ok := parseUsage(b[at+len(usageName):]); ok {
			return u, true
		}
		end = at
	}
}

// firstUsage parses the first readable usage object.
func firstUsage(b []byte) (usage, bool) {
	name := []byte(usageName)
	for {
		at := bytes.Index(b, name)
		if at < 0 {
			return usage{}, false
		}
		b = b[at+len(usageName):]
		if u, ok := parseUsage(b); ok {
			return u, true
		}
	}
}

// parseUsage reads `: {...}`. Chat and Completions say prompt_tokens,
// completion_tokens and prompt_tokens_details.cached_tokens; Responses
// input_tokens, output_tokens and input_tokens_details.cached_tokens; Messages
// input_tokens without the cached ones, which it counts in
// cache_read_input_tokens and cache_creation_input_tokens.
func parseUsage(b []byte) (usage, bool) {
	s := scan{b: b}
	if !s.take(':') {
		return usage{}, false
	}
	u := usage{cached: -1}
	read, created := -1, 0
	found := false
	ok := s.object(0, func(parent, name []byte, n int) {
		if len(parent) == 0 {
			switch string(name) {
			case "prompt_tokens", "input_tokens":
				u.prompt, found = n, true
			case "completion_tokens", "output_tokens":
				u.completion, found = n, true
			case "cache_read_input_tokens":
				read = n
			case "cache_creation_input_tokens":
				created = n
			}
			return
		}
		if string(name) == "cached_tokens" &&
			(string(parent) == "prompt_tokens_details" || string(parent) == "input_tokens_details") {
			u.cached = n
		}
	})
	u.prompt += max(read, 0) + created
	u.cached = max(u.cached, read)
	return u, ok && found
}

// scan walks over JSON in a window that may be cut off at its end.
type scan struct {
	b []byte
	i int
}

// scanDepth bounds the nesting of a usage object.
const scanDepth = 4

func (s *scan) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t' || s.b[s.i] == '\n' || s.b[s.i] == '\r') {
		s.i++
	}
}

func (s *scan) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// text reads a string and returns what is between its quotes, escapes as they are.
func (s *scan) text() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	from := s.i
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			return s.b[from : s.i-1], true
		}
	}
	return nil, false
}

// object walks an object and reports each number in it and in the objects right
// below. It returns false where the JSON is not what it should be, or cut off.
func (s *scan) object(depth int, number func(parent, name []byte, n int)) bool {
	if depth == scanDepth || !s.take('{') {
		return false
	}
	if s.take('}') {
		return true
	}
	for {
		name, ok := s.text()
		if !ok || !s.take(':') {
			return false
		}
		s.space()
		if s.i == len(s.b) {
			return false
		}
		switch s.b[s.i] {
		case '{':
			ok = s.object(depth+1, func(parent, inner []byte, n int) {
				if len(parent) == 0 {
					number(name, inner, n)
				}
			})
		case '"':
			_, ok = s.text()
		default:
			n, plain := s.scalar()
			if plain {
				number(nil, name, n)
			}
		}
		if !ok {
			return false
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// scalar skips a number, a literal or an array of such. plain is true for a
// whole number from 0 to a thousand million.
func (s *scan) scalar() (n int, plain bool) {
	from := s.i
	if s.b[s.i] == '[' {
		for s.i < len(s.b) && s.b[s.i] != ']' {
			s.i++
		}
		s.i = min(s.i+1, len(s.b))
		return 0, false
	}
	plain = true
	for ; s.i < len(s.b); s.i++ {
		c := s.b[s.i]
		if c == ',' || c == '}' || c == ' ' || c == '\n' || c == '\r' || c == '\t' {
			break
		}
		if c < '0' || c > '9' || s.i-from >= 9 {
			plain = false
		}
		if plain {
			n = n*10 + int(c-'0')
		}
	}
	return n, plain && s.i > from
}
