package key

// element reads one element of an array that starts at a position, and returns
// the position after it, or bad with r.reason set. It finds the end itself, so
// that an array need not be searched for it first.
type element func(r *reader, at int) int

// list reads each element of an array, until one returns bad.
func (r *reader) list(s Span, one element) bool {
	if r.kind(s) != '[' {
		return r.fail(ReasonInvalid)
	}
	b := r.body[:s.End]
	i := s.Start + 1
	for started := false; ; started = true {
		var more bool
		if i, more = separator(b, i, ']', started); !more {
			return i == s.End || r.fail(ReasonInvalid)
		}
		if i = one(r, i); i == bad {
			return false
		}
	}
}

// refuse is fail for an element.
func (r *reader) refuse(why Reason) int {
	r.reason = why
	return bad
}

// after returns the end of an object that was walked whole, or bad unless ok.
func (o *object) after(ok bool) int {
	if ok {
		return o.i
	}
	return bad
}

// empty says that a value is an array without elements.
func (r *reader) empty(s Span) bool {
	return r.kind(s) == '[' && r.body[skipSpace(r.body, s.Start+1)] == ']'
}

// contents writes what a message or a tool result holds: a string counts as
// one text, null as nothing, an array part by part.
func (r *reader) contents(s Span, part element) bool {
	switch {
	case r.null(s):
		return true
	case r.kind(s) == '[':
		return r.list(s, part)
	}
	return r.text(tagText, s)
}
