package key

import "strings"

// Key is the hash of a canonical prompt's prefix that ends at a block boundary,
// with the model and the cache salt folded in.
type Key uint64

// Geometry of the keys of one prompt. The first DenseKeys keys stand at every
// block; after them SparseRun keys at each stride of 2, 4, 8, ... blocks.
const (
	BlockBytes = 256
	DenseKeys  = 448
	SparseKeys = 64
	SparseRun  = 8
	MaxKeys    = DenseKeys + SparseKeys
)

// API is the shape of a request body.
type API uint8

// The shapes that have a prompt to read.
const (
	APIUnknown     API = iota // no prompt is read: routed by load
	APIChat                   // POST /v1/chat/completions
	APICompletions            // POST /v1/completions
	APIMessages               // POST /v1/messages (Anthropic)
	APIResponses              // POST /v1/responses
)

// ParsePath returns the shape of the bodies posted to a path. Slashes at the
// end are trimmed; anything else must be exact. A query is not part of a path.
func ParsePath(path string) API {
	switch strings.TrimRight(path, "/") {
	case "/v1/chat/completions":
		return APIChat
	case "/v1/completions":
		return APICompletions
	case "/v1/messages":
		return APIMessages
	case "/v1/responses":
		return APIResponses
	}
	return APIUnknown
}

// String returns the label value of an API.
func (a API) String() string {
	switch a {
	case APIChat:
		return "chat"
	case APICompletions:
		return "completions"
	case APIMessages:
		return "messages"
	case APIResponses:
		return "responses"
	}
	return "unknown"
}

// Span is a half-open range of bytes in the body. A span of a JSON string
// includes its quotes. The zero Span means "not there".
type Span struct{ Start, End int }

// Prompt is what Hasher.Read found. Reuse one per request: Keys keeps its
// storage, and Model too while the model stays the same.
type Prompt struct {
	Keys      []Key  // at most MaxKeys, shortest prefix first
	Bytes     int    // length of the canonical prompt in bytes, its partial last block included; 0 when Reason stopped the reading
	Model     string // the "model" member; also found when there are no keys
	Stream    bool   // the "stream" member is true
	Usage     bool   // a streamed answer tells its usage in an event of its own, near its end
	MaxTokens int    // max_completion_tokens, max_output_tokens or max_tokens, at most MaxInt32; 0 = not given
	Reason    Reason // why there are no keys; ReasonNone when there are

	// Stored ids named by a Responses body (raw JSON string tokens with quotes).
	PreviousResponseID Span
	Conversation       Span // the string itself, or the id inside the object form
	RequestID          Span
}

// Blocks returns how many blocks of the canonical prompt its first n keys
// cover: 0 for none, 448 for 448, 450 for 449, 4528 for MaxKeys.
func Blocks(n int) int {
	if n <= DenseKeys {
		return max(n, 0)
	}
	blocks, stride := DenseKeys, 2
	for n -= DenseKeys; n > SparseRun; n -= SparseRun {
		blocks += SparseRun * stride
		stride *= 2
	}
	return blocks + n*stride
}
