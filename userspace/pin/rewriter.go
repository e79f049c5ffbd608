package pin

import "strings"

// Form is how a response's body is rewritten.
type Form uint8

// The forms.
const (
	FormNone  Form = iota // nothing in it can be tagged: pass it as it is
	FormJSON              // a JSON document of a 2xx answer
	FormError             // a JSON document of an error: its message speaks of ids
	FormSSE               // server-sent events
)

// FormOf is the form of an answer with the status and with the values of its
// Content-Type and Content-Encoding headers. An encoded body cannot be read: it
// is FormNone, which Accept-Encoding must prevent.
func FormOf(status int, contentType, contentEncoding string) Form {
	if contentEncoding != "" && !strings.EqualFold(contentEncoding, "identity") {
		return FormNone
	}
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	switch {
	case mediaType == "text/event-stream":
		return FormSSE
	case mediaType != "application/json" &&
		(!strings.HasPrefix(mediaType, "application/") || !strings.HasSuffix(mediaType, "+json")):
		return FormNone
	case status >= 400:
		return FormError
	}
	return FormJSON
}

// Rewriter tags the stored ids of one response body as it passes. Only strings
// that start with resp_ or conv_ and have no tag yet are touched, and only as
//
//   - id, previous_response_id, response_id, conversation_id and conversation of
//     the root object and of its "response" object,
//   - id of a "conversation" object in either,
//   - words in message or detail of an "error" object in either; of the root
//     too in FormError and in SSE events that are named "error" or not named.
//
// Items, tools, metadata, input and generated text stay as they are. The output
// is the same however the input is cut into pieces. Memory is constant: at most
// one undecided id is held back, some 600 bytes. A body that is broken passes
// through; no bytes but stamps are ever added. Not safe for concurrent use.
type Rewriter struct {
	form    Form
	events  events
	scanner scanner
}

// NewRewriter returns a Rewriter that tags with the stamp (Tagger.Stamp) of the
// backend that answers.
func NewRewriter(stamp string, form Form) *Rewriter {
	r := &Rewriter{}
	r.Reset(stamp, form)
	return r
}

// Reset makes the Rewriter ready for another body.
func (r *Rewriter) Reset(stamp string, form Form) {
	r.form, r.events = form, events{}
	r.scanner.stamp, r.scanner.tags = stamp, 0
	r.scanner.reset(form == FormError)
}

// Append appends to dst what src, the next piece of the body, gives so far, and
// returns the extended slice. src and dst must not overlap.
func (r *Rewriter) Append(dst, src []byte) []byte {
	switch r.form {
	case FormNone:
		return append(dst, src...)
	case FormSSE:
		return r.sse(dst, src)
	}
	return r.scanner.scan(dst, src)
}

// Finish appends what is still held back at the end of the body. An id that was
// cut off stays without a tag.
func (r *Rewriter) Finish(dst []byte) []byte { return r.scanner.flush(dst) }

// AtBoundary says whether the body so far ends between two SSE events with
// nothing held back: only there may somebody else pass the next bytes, whole
// events for which EventCarriesIDs is false. It is false for JSON. After a
// stream's CR it is false until the next byte shows that no LF belongs to it.
func (r *Rewriter) AtBoundary() bool {
	return r.form == FormSSE && !r.events.begun && !r.events.cr && !r.scanner.holding()
}

// Tagged is how many ids got a tag so far.
func (r *Rewriter) Tagged() int { return r.scanner.tags }
