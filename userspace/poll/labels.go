package poll

import "bytes"

// labels are the few labels of a line that matter. Values share the line's
// bytes; a name with escapes in it stays escaped and so matches nothing, which
// counts as a series of another model.
type labels struct {
	model       []byte
	priority    []byte
	hasPriority bool
	blockSize   float64 // tokens; 0 = not there or no number, such as "None"
	blocks      float64
	tokens      float64
}

// read takes the labels at the beginning of b, if any, and returns what
// follows. ok is false when they have no end.
func (l *labels) read(b []byte) (rest []byte, ok bool) {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	if len(b) == 0 || b[0] != '{' {
		return b, true
	}
	b = b[1:]
	for {
		for len(b) > 0 && (b[0] == ' ' || b[0] == ',') {
			b = b[1:]
		}
		if len(b) == 0 {
			return nil, false
		}
		if b[0] == '}' {
			return b[1:], true
		}
		i := bytes.IndexByte(b, '=')
		if i < 0 || i+1 >= len(b) || b[i+1] != '"' {
			return nil, false
		}
		name := b[:i]
		b = b[i+2:]
		n := quoted(b)
		if n < 0 {
			return nil, false
		}
		l.set(name, b[:n])
		b = b[n+1:]
	}
}

// quoted is the length of a label's value up to its closing quote, or -1.
func quoted(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return -1
}

func (l *labels) set(name, value []byte) {
	switch string(name) {
	case "model_name":
		l.model = value
	case "priority":
		l.priority, l.hasPriority = value, true
	case "block_size", "page_size":
		l.blockSize = size(value)
	case "num_gpu_blocks", "num_pages":
		l.blocks = size(value)
	case "kv_cache_size_tokens":
		l.tokens = size(value)
	}
}

func size(b []byte) float64 {
	v, ok := number(b)
	if !ok || v < 0 {
		return 0
	}
	return v
}
