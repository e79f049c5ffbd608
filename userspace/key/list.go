package key

// list calls one for each element of an array, until it returns false.
func (r *reader) list(s Span, one func(r *reader, element Span) bool) bool {
	if r.kind(s) != '[' {
		return r.fail(ReasonInvalid)
	}
	a := r.array(s.Start)
	for a.next(r) {
		if !one(r, a.value) {
			return false
		}
	}
	return a.ok || r.fail(ReasonInvalid)
}

// empty says that a value is an array without elements.
func (r *reader) empty(s Span) bool {
	return r.kind(s) == '[' && r.body[skipSpace(r.body, s.Start+1)] == ']'
}

// contents writes what a message or a tool result holds: a string counts as
// one text, null as nothing, an array part by part.
func (r *reader) contents(s Span, part func(r *reader, part Span) bool) bool {
	switch {
	case r.null(s):
		return true
	case r.kind(s) == '[':
		return r.list(s, part)
	}
	return r.text(tagText, s)
}
