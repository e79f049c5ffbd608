package key

// Reason says why a body has no keys. A body without keys is still forwarded.
type Reason uint8

// The reasons, in the order of their discovery.
const (
	ReasonNone      Reason = iota // it has keys
	ReasonDisabled                // prefix affinity is off: the body was not read
	ReasonPath                    // not one of the four prompt APIs
	ReasonEncoding                // Content-Encoding that is not decoded here
	ReasonInvalid                 // not JSON, not UTF-8, wrong types, or nested too deeply
	ReasonNoPrompt                // no messages, prompt or input
	ReasonShort                   // under one full block
	ReasonTokens                  // token arrays while token_arrays is off
	ReasonPrompts                 // several prompts in one body
	ReasonPart                    // a part or item kind that is not known
	ReasonContinued               // continues a stored response or conversation
)
