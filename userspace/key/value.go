package key

import "slices"

// fail stops the reading of the prompt: why is the reason of the body.
func (r *reader) fail(why Reason) bool {
	r.reason = why
	return false
}

// kind returns the first byte of a value: it tells the type. 0 for the zero
// span.
func (r *reader) kind(s Span) byte {
	if s == (Span{}) {
		return 0
	}
	return r.body[s.Start]
}

// null says that a member is not there, or null: the same in every API.
func (r *reader) null(s Span) bool {
	k := r.kind(s)
	return k == 0 || k == 'n'
}

// str returns the decoded content of a string, valid until the next call.
// False: not a string.
func (r *reader) str(s Span) ([]byte, bool) { return r.unescape(&r.scrap, s) }

// unescape returns the decoded content of a string. It aliases the body or
// scratch.
func (r *reader) unescape(scratch *[]byte, s Span) ([]byte, bool) {
	if r.kind(s) != '"' {
		return nil, false
	}
	i := s.Start + 1
	if end := plainEnd(r.body[:s.End], i); end == s.End-1 {
		return r.body[i:end], true
	}
	*scratch = slices.Grow((*scratch)[:0], s.End-i+decodeRoom)
	dst := (*scratch)[:cap(*scratch)]
	n, next, how := decode(dst, r.body, i)
	*scratch = dst[:n]
	return *scratch, how == decodedAll && next == s.End
}

// whole returns a value that is a number written in digits alone. Above limit
// it returns limit.
func (r *reader) whole(s Span, limit int64) (int64, bool) {
	digits := r.body[s.Start:s.End]
	if len(digits) == 0 {
		return 0, false
	}
	var n int64
	for _, d := range digits {
		if d -= '0'; d > 9 {
			return 0, false
		}
		n = min(n*10+int64(d), limit)
	}
	return n, true
}

// isDefault says that a value is the JSON scalar def: a word, or a string
// whose decoded content is def.
func (r *reader) isDefault(s Span, def string) bool {
	if def == "" {
		return false
	}
	if r.kind(s) == '"' {
		text, ok := r.str(s)
		return ok && string(text) == def && def != "true" && def != "false"
	}
	return string(r.body[s.Start:s.End]) == def
}
