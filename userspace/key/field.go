package key

// The canonical prompt is a sequence of fields:
//
//	field   = 0xFF tag content
//	content = decoded text | JSON | 0xFD digest | source digest | token ids | nothing
//
// A tag fixes the form of its content. Text and JSON are UTF-8 and so never
// hold 0xFF; digests have 8 bytes; token ids are always the last field. So a
// prompt can be told from its bytes, and a longer conversation's bytes begin
// with a shorter one's: nothing in front of a text depends on its length.
const (
	// The head: what shapes the prompt from its start.
	tagTemplate      = 'T'
	tagTemplateArgs  = 'K'
	tagDocuments     = 'D'
	tagTools         = 't'
	tagFunctions     = 'f'
	tagToolChoice    = 'h'
	tagEffort        = 'e'
	tagSpecialTokens = 'b'
	tagProcessor     = 'm'
	tagMediaIO       = 'o'
	tagTruncate      = 'z'
	tagSuffix        = 's'
	tagStored        = 'P' // Responses "prompt": a template kept by the engine
	tagInstructions  = 'I'

	// The conversation.
	tagRole         = 'R' // begins a message
	tagName         = 'n'
	tagText         = 'x'
	tagMessageTools = 'l'
	tagTask         = 'w'
	tagCall         = 'c' // the name of a tool call; its arguments follow
	tagArguments    = 'a' // JSON
	tagInput        = 'A' // text: a custom tool's input, or arguments that are not JSON
	tagResult       = 'r' // begins a tool result, which ends with tagEnd
	tagFailed       = '!' // the result is an error
	tagEnd          = '.'
	tagReference    = 'q'
	tagItem         = 'i' // a block or item that counts as one JSON value
	tagTitle        = 'N'
	tagContext      = 'C'
	tagEarlier      = 'v'

	// Media: one source byte and a digest.
	tagImage       = 'G'
	tagVideo       = 'V'
	tagAudio       = 'U'
	tagFile        = 'F'
	tagImageEmbeds = 'y'
	tagAudioEmbeds = 'u'
	tagEmbeds      = 'E'

	// Completions.
	tagPrompt = 'p'
	tagTokens = 'k'
)

// Sources of a media digest.
const (
	sourceUUID  = 'u' // the client's name for the part
	sourceText  = 's' // a decoded string: a URL, a file id, base64 data
	sourceValue = 'v' // any other value, as sent
)

func (r *reader) tag(tag byte) {
	r.stage[0], r.stage[1] = markField, tag
	r.chain.write(r.stage[:2])
}

// text writes a field of decoded text. Not a string: ReasonInvalid.
func (r *reader) text(tag byte, s Span) bool {
	if r.kind(s) != '"' {
		return r.fail(ReasonInvalid)
	}
	r.tag(tag)
	return r.content(s, &r.chain)
}

// textIf writes a field of text unless the value is null.
func (r *reader) textIf(tag byte, s Span) bool {
	return r.null(s) || r.text(tag, s)
}

// sink takes decoded text: the chain, or the digest of one part.
type sink interface{ write(p []byte) }

// content writes the decoded content of a string, in runs: what holds no
// escape goes from the body itself.
func (r *reader) content(s Span, to sink) bool {
	b := r.body[:s.End]
	for i := s.Start + 1; ; {
		end := plainEnd(b, i)
		if end > i {
			to.write(b[i:end])
		}
		if end == len(b)-1 && b[end] == '"' {
			return true
		}
		n, next, how := decode(r.stage[:], b, end)
		if how == decodedBad {
			return r.fail(ReasonInvalid)
		}
		to.write(r.stage[:n])
		if how == decodedAll {
			return next == s.End || r.fail(ReasonInvalid)
		}
		i = next
	}
}

// json writes a field with a JSON value in canonical form, or by the digest of
// its bytes as sent if it is longer than canonicalLimit.
func (r *reader) json(tag byte, s Span) bool {
	r.tag(tag)
	if s.End-s.Start > canonicalLimit {
		r.stage[0] = markLarge
		r.chain.write(r.stage[:1])
		r.beginDigest()
		r.write(r.body[s.Start:s.End])
		r.endDigest()
		return true
	}
	form := r.canon.form(r.body[s.Start:s.End], r.api == APIMessages && tag != tagArguments)
	if form == nil {
		return r.fail(ReasonInvalid)
	}
	r.chain.write(form)
	return true
}

// jsonIf writes a JSON field unless the value is null.
func (r *reader) jsonIf(tag byte, s Span) bool {
	return r.null(s) || r.json(tag, s)
}

// media writes the fixed-size field of one image, video, audio or file: the
// digest of its uuid if it has one, else of the first value that is there.
func (r *reader) media(tag byte, uuid Span, values ...Span) bool {
	source, value := byte(0), Span{}
	if !r.null(uuid) {
		id, ok := r.str(uuid)
		if !ok {
			return r.fail(ReasonInvalid)
		}
		if len(id) > 0 {
			source, value = sourceUUID, uuid
		}
	}
	for i := 0; source == 0 && i < len(values); i++ {
		switch k := r.kind(values[i]); k {
		case 0, 'n':
		case '"':
			source, value = sourceText, values[i]
		default:
			source, value = sourceValue, values[i]
		}
	}
	if source == 0 {
		return r.fail(ReasonInvalid)
	}
	r.tag(tag)
	r.stage[0] = source
	r.chain.write(r.stage[:1])
	r.beginDigest()
	if source == sourceValue {
		r.write(r.body[value.Start:value.End])
	} else if !r.content(value, r) {
		return false
	}
	r.endDigest()
	return true
}

// digestBytes is the length of a digest in the canonical prompt.
const digestBytes = 8

// beginDigest starts the digest of one value, endDigest writes it to the
// chain. Nothing is hashed once all keys are known.
func (r *reader) beginDigest() { r.digest = *r.fresh }

// write adds to the digest: a reader is the sink of its digest.
func (r *reader) write(p []byte) {
	if !r.chain.full() {
		_, _ = r.digest.Write(p)
	}
}

func (r *reader) endDigest() {
	sum := r.digest.Sum64()
	for i := range digestBytes {
		r.stage[i] = byte(sum >> (8 * i))
	}
	r.chain.write(r.stage[:digestBytes])
}
