package key

// object walks the members of one JSON object. Where a name comes twice the
// caller sees both, in order: assigning makes the last one win.
type object struct {
	i       int // where to go on
	started bool
	depth   int  // open containers, this one included
	ok      bool // false: the object is not JSON

	name  []byte // decoded; valid until the next call of next
	value Span
}

// object starts at the "{" at position at.
func (r *reader) object(at, depth int) object {
	return object{i: at + 1, depth: depth, ok: true}
}

// next moves to the next member and says whether there is one.
func (o *object) next(r *reader) bool {
	b := r.body
	i, more := separator(b, o.i, '}', o.started)
	if !more {
		o.i, o.ok = i, i != bad
		return false
	}
	o.started = true
	if b[i] != '"' {
		return o.fail()
	}
	i++
	end := plainEnd(b, i)
	if end < len(b) && b[end] == '"' {
		o.name = b[i:end]
		i = end + 1
	} else {
		end = skipString(b, i)
		if end == bad {
			return o.fail()
		}
		var ok bool
		if o.name, ok = r.unescape(&r.name, Span{i - 1, end}); !ok {
			return o.fail()
		}
		i = end
	}
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != ':' {
		return o.fail()
	}
	o.value.Start = skipSpace(b, i+1)
	o.value.End = skipValue(b, o.value.Start, o.depth)
	if o.value.End == bad {
		return o.fail()
	}
	o.i = o.value.End
	return true
}

func (o *object) fail() bool {
	o.ok = false
	return false
}

// array walks the elements of one JSON array.
type array struct {
	i       int
	started bool
	ok      bool
	value   Span
}

// array starts at the "[" at position at.
func (r *reader) array(at int) array { return array{i: at + 1, ok: true} }

// next moves to the next element and says whether there is one.
func (a *array) next(r *reader) bool {
	i, more := separator(r.body, a.i, ']', a.started)
	if !more {
		a.i, a.ok = i, i != bad
		return false
	}
	a.started = true
	a.value.Start = i
	a.value.End = skipValue(r.body, i, 1)
	a.i = a.value.End
	a.ok = a.i != bad
	return a.ok
}

// separator finds the start of the next member or element after i. more is
// false at the end, where pos is after the closing bracket, or bad.
func separator(b []byte, i int, closing byte, started bool) (pos int, more bool) {
	i = skipSpace(b, i)
	if i >= len(b) {
		return bad, false
	}
	if b[i] == closing {
		return i + 1, false
	}
	if !started {
		return i, true
	}
	if b[i] != ',' {
		return bad, false
	}
	i = skipSpace(b, i+1)
	if i >= len(b) || b[i] == closing {
		return bad, false
	}
	return i, true
}
