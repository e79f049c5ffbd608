package proxy

import (
	"net/http"

	"github.com/tautline/tautline/userspace/key"
)

// Pinner binds requests that name a stored id to the backend that holds it, and
// marks the ids in answers so that they come back here. Its methods may be
// called concurrently.
type Pinner interface {
	// Request is asked once for each request, before a backend is chosen.
	Request(r PinRequest) PinAnswer
	// Response returns what rewrites the body of an answer, or nil when it holds
	// nothing to rewrite. It is asked only where there is a body.
	Response(by Backend, r PinRequest, status int, header http.Header) Rewriter
	// Readable tells whether the answer must come without a Content-Encoding,
	// because Response will have to read it.
	Readable(r PinRequest) bool
}

// PinRequest is what a Pinner sees of a request.
type PinRequest struct {
	Method string
	Path   string // escaped, as the client spelled it
	API    key.API
	Prompt *key.Prompt // spans of the ids in Body; nil when the body was not read
	Body   []byte      // must not be changed or kept; nil when the body is streamed
}

// PinAnswer is what a Pinner says about a request. The zero value of Edits and
// Path, with Slot -1, means that the request goes on as it is.
type PinAnswer struct {
	Slot   int     // the slot to send to, or -1: choose as for any request
	Site   string  // site whose backends are preferred; empty = none
	Refuse Refusal // if not RefusalNone the request ends here
	Detail string  // added to the refusal's message
	Path   string  // escaped path to send instead; empty = as it came
	Edits  []Edit  // replacements in the body, ascending and disjoint
}

// Edit replaces a span of a body.
type Edit struct {
	At   key.Span
	With []byte
}

// Rewriter changes a body that streams through. The pieces may be split anywhere.
type Rewriter interface {
	// Append appends to dst what can be sent after p has come in.
	Append(dst, p []byte) []byte
	// Finish appends what was held back, at the end of the body.
	Finish(dst []byte) []byte
}

// NoPin is the Pinner that binds nothing.
type NoPin struct{}

// Request lets every request go on.
func (NoPin) Request(PinRequest) PinAnswer { return PinAnswer{Slot: -1} }

// Response rewrites nothing.
func (NoPin) Response(Backend, PinRequest, int, http.Header) Rewriter { return nil }

// Readable is false.
func (NoPin) Readable(PinRequest) bool { return false }

// edited returns a body with the edits applied, in a buffer of its own.
func (s *buffers) edited(b *buffer, edits []Edit, memory int64) (*buffer, error) {
	size := b.n
	for _, e := range edits {
		size += len(e.With)
	}
	out, err := s.get(size, memory)
	if err != nil {
		return nil, err
	}
	src, at := b.bytes(), 0
	for _, e := range edits {
		out.n += copy(out.data[out.n:], src[at:e.At.Start])
		out.n += copy(out.data[out.n:], e.With)
		at = e.At.End
	}
	out.n += copy(out.data[out.n:], src[at:])
	return out, nil
}
