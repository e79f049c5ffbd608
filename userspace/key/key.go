// Package key turns a request body into the keys of its canonical prompt.
//
// It is pure: no clock, no network, no globals that change. One pass over the
// body finds what shapes the prompt, a second touches only those spans in
// canonical order; nothing is decoded into a document tree.
package key

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

// Span is a half-open range of bytes in the body. A span of a JSON string
// includes its quotes. The zero Span means "not there".
type Span struct{ Start, End int }

// Prompt is what Hasher.Read found. Reuse one per request: Keys keeps its storage.
type Prompt struct {
	Keys      []Key  // at most MaxKeys, shortest prefix first
	Bytes     int    // length of the canonical prompt in bytes, its partial last block included
	Model     string // the "model" member; also found when there are no keys
	Stream    bool   // the "stream" member
	MaxTokens int    // max_completion_tokens, max_output_tokens or max_tokens; 0 = not given
	Reason    Reason // why there are no keys; ReasonNone when there are

	// Stored ids named by a Responses body (raw JSON string tokens with quotes).
	PreviousResponseID Span
	Conversation       Span // the string itself, or the id inside the object form
	RequestID          Span
}
