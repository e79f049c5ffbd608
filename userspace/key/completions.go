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
	return r.list(prompt, (*reader).token)
}

// first returns the first element of an array that is not empty.
func (r *reader) first(s Span) (element Span, several, ok bool) {
	a := r.array(s.Start)
	if !a.next(r) {
		return Span{}, false, false
	}
	element = a.value
	several = a.next(r)
	return element, several, a.ok
}

// token writes one token id: four bytes, low first.
func (r *reader) token(s Span) bool {
	id, ok := r.whole(s, math.MaxUint32+1)
	if !ok || id > math.MaxUint32 {
		return r.fail(ReasonInvalid)
	}
	binary.LittleEndian.PutUint32(r.stage[:], uint32(id))
	r.chain.write(r.stage[:4])
	return true
}
