package load

// Clamp of the learned bytes per token. Below it lies no tokenizer, above it
// only a usage report that does not belong to the prompt.
const (
	minBytesPerToken = 0.25
	maxBytesPerToken = 64
)

// decay is how much of a running mean survives one more value:
// S <- 0.99 S + x, n <- 0.99 n + 1, mean = S/n.
const decay = 0.99

// mean is an exponentially forgetting weighted mean.
type mean struct{ sum, weight float64 }

func (m *mean) add(x, w float64) {
	m.sum = decay*m.sum + x
	m.weight = decay*m.weight + w
}

func (m *mean) value() float64 { return m.sum / m.weight }

// means is what the answers of one model teach.
type means struct {
	bytes  mean // canonical prompt bytes over prompt tokens
	output mean // completion tokens over answers
}

// priorTokens is the weight of the first estimate of bytes per token, in prompt
// tokens: small, so that the first real prompts replace it.
const priorTokens = 64

func newMeans(p *Params) means {
	return means{
		bytes:  mean{p.BytesPerToken * priorTokens, priorTokens},
		output: mean{p.Output, 1},
	}
}

// clamped is a mean of bytes per token within what can be.
func clamped(bytes mean) float64 {
	return min(max(bytes.value(), minBytesPerToken), maxBytesPerToken)
}
