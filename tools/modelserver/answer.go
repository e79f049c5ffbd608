package modelserver

import (
	"encoding/json"
	"slices"
	"strings"
)

// answer is a text or a tool call that follows from the prompt alone. Its
// pieces are tokens of four bytes (the last may be shorter).
type answer struct {
	seed   hash
	pieces int
	whole  bool   // ended by itself, not by the limit
	tool   string // name of the tool called; "" = a text
	args   string // its arguments, JSON
}

const syllables = "bcdfghjklmnprstvaeiou"

// word spells h as three letters and a space: one token.
func word(h hash) string {
	var b [bytesPerToken]byte
	b[0] = syllables[uint64(h)%16]
	b[1] = syllables[16+uint64(h>>16)%5]
	b[2] = syllables[uint64(h>>32)%16]
	b[3] = ' '
	return string(b[:])
}

func newAnswer(seed hash, mean, limit, least int, ignoreEOS bool) answer {
	n := mean/2 + int(uint64(seed.mix(nil))%uint64(mean+1))
	n = max(n, least, 1)
	if limit > 0 && (n > limit || ignoreEOS) {
		return answer{seed: seed, pieces: limit}
	}
	return answer{seed: seed, pieces: n, whole: true}
}

func newCall(seed hash, t tool, limit int) answer {
	a := answer{seed: seed, tool: t.name, args: arguments(seed, t.schema), whole: true}
	a.pieces = max(1, (len(a.args)+bytesPerToken-1)/bytesPerToken)
	if limit > 0 && a.pieces > limit {
		a.pieces, a.whole = limit, false
	}
	return a
}

// piece returns the i-th token.
func (a *answer) piece(i int) string {
	if a.tool == "" {
		return word(hash(uint64(a.seed) + uint64(i)*mixA).mix(nil))
	}
	from := min(i*bytesPerToken, len(a.args))
	return a.args[from:min(from+bytesPerToken, len(a.args))]
}

// text returns the first n pieces.
func (a *answer) text(n int) string {
	var b strings.Builder
	b.Grow(n * bytesPerToken)
	for i := range n {
		b.WriteString(a.piece(i))
	}
	return b.String()
}

// arguments makes a JSON object that fits the common part of a JSON schema:
// the declared properties by their type.
func arguments(seed hash, schema json.RawMessage) string {
	var s struct {
		Properties map[string]struct {
			Type any   `json:"type"`
			Enum []any `json:"enum"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(schema, &s) // another shape: no arguments
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	args := make(map[string]any, len(names))
	for _, name := range names {
		p := s.Properties[name]
		h := seed.mix([]byte(name))
		switch {
		case len(p.Enum) > 0:
			args[name] = p.Enum[uint64(h)%uint64(len(p.Enum))]
		case p.Type == "integer" || p.Type == "number":
			args[name] = uint64(h) % 100
		case p.Type == "boolean":
			args[name] = h&1 == 0
		case p.Type == "array":
			args[name] = []any{}
		case p.Type == "object":
			args[name] = map[string]any{}
		default:
			args[name] = strings.TrimSpace(word(h) + word(h.mix(nil)))
		}
	}
	b, err := json.Marshal(args) // sorts the names
	if err != nil {
		return "{}"
	}
	return string(b)
}
