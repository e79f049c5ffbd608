package pin

import "slices"

// Span is a half-open range of bytes of a body. A span of a JSON string
// includes its quotes. The zero Span means "not there".
type Span struct{ Start, End int }

// Names are the stored ids that a request body names, decoded. Empty means
// absent, null or not a string. Of duplicate members the last counts, as in
// engines.
type Names struct {
	PreviousResponseID string
	Conversation       string // the string itself, or the id inside the object form
	RequestID          string // an id that the client chose for the new response

	// Spans are all strings found in those places, earlier duplicates
	// included, in the order of the body.
	Spans []Span
}

// ReadBody finds the stored ids that the body of a create, compact or
// input_tokens request names: its top-level previous_response_id, conversation
// and request_id. A body that is no JSON object names none; it is not checked
// beyond what finding them takes.
func ReadBody(body []byte) Names {
	var n Names
	f := finder{b: body}
	f.object(func(key string, start int) {
		switch key {
		case "previous_response_id":
			n.PreviousResponseID = f.id(&n, start)
		case "request_id":
			n.RequestID = f.id(&n, start)
		case "conversation":
			n.Conversation = ""
			if f.peek() != '{' {
				n.Conversation = f.id(&n, start)
				return
			}
			f.object(func(key string, start int) {
				if key == "id" {
					n.Conversation = f.id(&n, start)
				}
			})
		}
	})
	return n
}

// StripBody returns the body with the tags of the site cut out of the strings
// at the spans, in any order. Nothing else changes, tags of other sites stay.
// The result is the body itself when there is nothing to cut, else a new slice.
func StripBody(body []byte, site string, spans ...Span) []byte {
	var out []byte
	done := 0
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return a.Start - b.Start })
	for _, s := range spans {
		if s == (Span{}) || s.Start < done {
			continue
		}
		tag, ok := Parse(decodeID(body[s.Start:s.End]))
		if !ok || tag.Site != site {
			continue
		}
		if out == nil {
			out = make([]byte, 0, len(body))
		}
		content := body[s.Start+1 : s.End-1]
		out = append(out, body[done:s.Start+1+unitsEnd(content, prefixLen)]...)
		done = s.Start + 1 + unitsEnd(content, prefixLen+tag.stamp())
	}
	if out == nil {
		return body
	}
	return append(out, body[done:]...)
}

// finder walks a JSON text that is held whole.
type finder struct {
	b []byte
	i int
}

// object walks the object at the cursor and calls member for each of its
// members with the cursor at the value, at offset start. A value that member
// left is skipped. It ends behind the object, or at the end of a broken text.
func (f *finder) object(member func(key string, start int)) {
	if f.peek() != '{' {
		return
	}
	f.i++
	for {
		switch f.peek() {
		case ',':
			f.i++
			continue
		case '}':
			f.i++
			return
		case '"':
		default:
			f.i = len(f.b)
			return
		}
		key := decodeID(f.string())
		if f.peek() != ':' {
			f.i = len(f.b)
			return
		}
		f.i++
		f.peek()
		start := f.i
		if member(key, start); f.i == start {
			f.skip()
		}
	}
}

// id takes the value at the cursor if it is a string.
func (f *finder) id(n *Names, start int) string {
	if f.peek() != '"' {
		return ""
	}
	token := f.string()
	if len(token) < 2 {
		return ""
	}
	n.Spans = append(n.Spans, Span{start, f.i})
	return decodeID(token)
}

// string takes the string token at the cursor; nil if it does not end.
func (f *finder) string() []byte {
	start := f.i
	end, ok := stringEnd(f.b, start+1)
	f.i = end
	if !ok {
		return nil
	}
	return f.b[start:end]
}

// skip passes over one value.
func (f *finder) skip() {
	depth := 0
	for f.i < len(f.b) {
		switch f.b[f.i] {
		case '"':
			f.i, _ = stringEnd(f.b, f.i+1)
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return
			}
			if depth--; depth == 0 {
				f.i++
				return
			}
		case ',':
			if depth == 0 {
				return
			}
		}
		f.i++
	}
}

// peek passes over white space and returns the byte at the cursor, 0 at the end.
func (f *finder) peek() byte {
	for f.i < len(f.b) {
		switch c := f.b[f.i]; c {
		case ' ', '\t', '\r', '\n':
			f.i++
		default:
			return c
		}
	}
	return 0
}
