package key

// Reason says why a body has no keys. A body without keys is still forwarded.
type Reason uint8

// The reasons, in the order of their discovery.
const (
	ReasonNone      Reason = iota // it has keys
	ReasonDisabled                // prefix affinity is off: the prompt was not read
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

// String returns the label value of a reason.
func (r Reason) String() string {
	switch r {
	case ReasonNone:
		return "none"
	case ReasonDisabled:
		return "disabled"
	case ReasonPath:
		return "path"
	case ReasonEncoding:
		return "encoding"
	case ReasonInvalid:
		return "invalid"
	case ReasonNoPrompt:
		return "no_prompt"
	case ReasonShort:
		return "short"
	case ReasonTokens:
		return "tokens"
	case ReasonPrompts:
		return "prompts"
	case ReasonPart:
		return "part"
	case ReasonContinued:
		return "continued"
	}
	return "unknown"
}
