package key

// object walks the members of one JSON object. Where a name comes twice the
// caller sees both, in order: assigning makes the last one win.
type object struct {
	i       int // where to go on
	started bool
	first   bool // the top level: note the ends of long values
	ok      bool // false: the object is not JSON

	name  []byte // decoded; valid until the next call of next
	value Span
}

// object starts at the "{" at position at.
func (r *reader) object(at int) object { return object{i: at + 1, ok: true} }

// skip returns the position after the value at i, which the scan of the top
// level has passed over: it is not too deep.
func (r *reader) skip(i int) int {
	if i < len(r.body) {
		switch r.body[i] {
		case '"', '{', '[':
			if after := r.ends.find(i); after != bad {
				return after
			}
		}
	}
	return skipValue(r.body, i, 1, nil)
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
	if o.first {
		o.value.End = skipValue(b, o.value.Start, 1, &r.ends)
	} else {
		o.value.End = r.skip(o.value.Start)
	}
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

// separator finds the start of the next member or element after i. more is
// false at the end, where pos is after the closing bracket, or bad.
func separator(b []byte, i int, closing byte, started bool) (pos int, more bool) {
	if started && i+1 < len(b) && b[i] == ',' && b[i+1] > ' ' && b[i+1] != closing {
		return i + 1, true // without white space, as most bodies are
	}
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
