package proxy

import (
	"net/http"

	"github.com/tautline/tautline/userspace/key"
)

// Pinner binds requests that name a stored id to the backend that holds it, and
// marks the ids in answers so that they come back here. Its methods may be
// called concurrently.
type Pinner interface {
	// Readable is asked first: does the request deal with stored objects, so that
	// its body and its answer have to be read? If not, the Pinner hears no more
	// of it. Only Method, Path and API of r are filled.
	Readable(r PinRequest) bool
	// Request is asked once, before a backend is chosen.
	Request(r PinRequest) PinAnswer
	// Response returns what rewrites the body of an answer, or nil when it holds
	// nothing to rewrite, or why the answer must not be passed on. It is asked for
	// HEAD as well: the head is then what GET's would be. backend is the name of
	// the backend that answers.
	Response(backend string, r PinRequest, status int, header http.Header) (Rewriter, Refusal)
}

// PinRequest is what a Pinner sees of a request.
type PinRequest struct {
	Method string
	Path   string // escaped, as the client spelled it
	API    key.API
	Prompt *key.Prompt // what was found in Body; only valid in Request
	Body   []byte      // decoded; must not be changed or kept; nil when there is none or it is Unread
	Unread bool        // there is a body, in an encoding that is not read here
}

// PinAnswer is what a Pinner says about a request. The zero value of Edits and
// Path, with Slot -1, means that the request goes on as it is.
type PinAnswer struct {
	Slot int // the slot to send to, or -1: choose as for any request
	// Backend is the name of the one that is meant: if another has got the slot
	// meanwhile, the request ends with RefusalPinUnknown. Empty = whichever it is.
	Backend string
	Site    string  // site whose backends are preferred; empty = none
	Refuse  Refusal // if not RefusalNone the request ends here
	Path    string  // escaped path to send instead; empty = as it came
	Edits   []Edit  // replacements in Body, ascending and disjoint; it is then sent decoded
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

// EventRewriter is what a Rewriter of event streams may implement as well: it
// changes no byte of an event whose name ends in ".delta", so that such events
// need not pass it.
type EventRewriter interface {
	Rewriter
	// AtBoundary says whether what came in so far ends between two events, and
	// all of it has come out.
	AtBoundary() bool
}

// NoPin is the Pinner that binds nothing.
type NoPin struct{}

// Request lets every request go on.
func (NoPin) Request(PinRequest) PinAnswer { return PinAnswer{Slot: -1} }

// Response rewrites nothing.
func (NoPin) Response(string, PinRequest, int, http.Header) (Rewriter, Refusal) {
	return nil, RefusalNone
}

// Readable is false.
func (NoPin) Readable(PinRequest) bool { return false }

// edited returns a body with the edits applied, in a buffer of its own.
func (s *buffers) edited(b *buffer, edits []Edit, memory int64) (*buffer, error) {
	size := b.n
	for _, e := range edits {
		size += len(e.With) - (e.At.End - e.At.Start)
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
