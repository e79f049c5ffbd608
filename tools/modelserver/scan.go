package modelserver

import (
	"bytes"
	"encoding/json"
	"errors"
)

var errNotObject = errors.New("body is not a JSON object")

// scan reads the few top-level members that instant mode needs, skipping the
// rest at the speed of a byte search. It trusts the body to be valid.
func (r *request) scan(b []byte) error {
	i := skipSpace(b, 0)
	if i == len(b) || b[i] != '{' {
		return errNotObject
	}
	for i++; ; {
		i = skipSpace(b, i)
		if i < len(b) && b[i] == '}' {
			return nil
		}
		from := i
		if i = skipValue(b, i); i >= len(b) {
			return errNotObject
		}
		name := b[from:i]
		if i = skipSpace(b, i); i == len(b) || b[i] != ':' {
			return errNotObject
		}
		from = skipSpace(b, i+1)
		if i = skipValue(b, from); i > len(b) || i == from {
			return errNotObject
		}
		if err := r.member(name, b[from:i]); err != nil {
			return err
		}
		if i = skipSpace(b, i); i == len(b) {
			return errNotObject
		}
		if b[i] == ',' {
			i++
		}
	}
}

func (r *request) member(name, value []byte) error {
	switch string(name) {
	case `"model"`:
		return json.Unmarshal(value, &r.Model)
	case `"stream"`:
		return json.Unmarshal(value, &r.Stream)
	case `"stream_options"`:
		return json.Unmarshal(value, &r.StreamOptions)
	case `"max_tokens"`:
		return json.Unmarshal(value, &r.MaxTokens)
	case `"max_completion_tokens"`:
		return json.Unmarshal(value, &r.MaxCompletionTokens)
	case `"max_output_tokens"`:
		return json.Unmarshal(value, &r.MaxOutputTokens)
	case `"ignore_eos"`:
		return json.Unmarshal(value, &r.IgnoreEOS)
	case `"request_id"`:
		return json.Unmarshal(value, &r.RequestID)
	case `"store"`:
		return json.Unmarshal(value, &r.Store)
	}
	return nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the end of the JSON value at i; len(b) or more when the
// body ends inside it.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = skipString(b, i+1); depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of the object around a number or literal
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return len(b) + 1
}

// skipString returns the position after the closing quote.
func skipString(b []byte, i int) int {
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b) + 1
		}
		i += n + 1
		slashes := 0
		for k := i - 2; k >= 0 && b[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}
