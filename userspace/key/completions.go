package key

import (
	"encoding/binary"
	"math"
)

// completions writes a Completions prompt: one string, or one array of token
// ids where those are keyed.
func (r *reader) completions(tokenArrays bool) bool {
	prompt, embeds := r.top[memberPrompt], r.top[memberPromptEmbeds]
	if r.null(prompt) && r.null(embeds) || r.empty(prompt) {
		return r.fail(ReasonNoPrompt)
	}
	if !r.head(completionsHead[:]) {
		return false
	}
	if !r.null(embeds) && !r.media(tagEmbeds, Span{}, embeds) {
		return false
	}
	if r.null(prompt) {
		return true
	}
	if r.kind(prompt) != '[' {
		return r.text(tagPrompt, prompt)
	}
	first, several, ok := r.first(prompt)
	switch k := r.kind(first); {
	case !ok:
		return r.fail(ReasonInvalid)
	case k == '"':
		if several {
			return r.fail(ReasonPrompts)
		}
		return r.text(tagPrompt, first)
	case k == '[':
		if several {
			return r.fail(ReasonPrompts)
		}
		if r.empty(first) {
			return r.fail(ReasonNoPrompt)
		}
		prompt = first
	case k < '0' || k > '9':
		return r.fail(ReasonInvalid)
	}
	if !tokenArrays {
		return r.fail(ReasonTokens)
	}
	r.tag(tagTokens)
	return r.tokens(prompt)
}

// first returns the first element of an array that is not empty.
func (r *reader) first(s Span) (element Span, several, ok bool) {
	b := r.body[:s.End]
	i, more := separator(b, s.Start+1, ']', false)
	if !more {
		return Span{}, false, false
	}
	end := r.skip(i)
	if end == bad {
		return Span{}, false, false
	}
	after, several := separator(b, end, ']', true)
	return Span{i, end}, several, after != bad
}

// tokens writes an array of token ids: four bytes each, low first.
func (r *reader) tokens(s Span) bool {
	b := r.body[:s.End]
	n := 0
	i := s.Start + 1
	for started := false; ; started = true {
		var more bool
		if i, more = separator(b, i, ']', started); !more {
			r.chain.write(r.stage[:n])
			return i == s.End || r.fail(ReasonInvalid)
		}
		start, id := i, uint64(0)
		for i < len(b) && b[i]-'0' <= 9 && id <= math.MaxUint32 {
			id = id*10 + uint64(b[i]-'0')
			i++
		}
		if i == start || id > math.MaxUint32 || b[start] == '0' && i > start+1 {
			return r.fail(ReasonInvalid)
		}
		binary.LittleEndian.PutUint32(r.stage[n:], uint32(id))
		if n += 4; n == len(r.stage) {
			r.chain.write(r.stage[:n])
			n = 0
		}
	}
}
