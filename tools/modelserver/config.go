package modelserver

import (
	"errors"
	"fmt"
	"time"
)

// The engines that can be imitated.
const (
	VLLM   = "vllm"
	SGLang = "sglang"
)

// BlockTokens is the size of a KV block, bytesPerToken the crude tokenizer.
const (
	BlockTokens   = 16
	bytesPerToken = 4
	blockBytes    = BlockTokens * bytesPerToken
)

// Config shapes a Server. Start from Default.
type Config struct {
	Engine string   // VLLM or SGLang: names of metrics, fields of errors
	Models []string // served names; the first answers requests that name none

	PrefillRate      float64       // prompt tokens per second, shared by all requests; calibrate must find this
	MaxBatchedTokens int           // tokens of one engine step: the prefill chunk
	MaxSeqs          int           // requests in the running batch; the rest wait
	MaxQueued        int           // requests that may wait; those beyond are refused with 503; 0 = any number
	TokenDelay       time.Duration // time a step takes for its decoding requests: the inter-token delay
	CacheBlocks      int           // KV blocks of BlockTokens tokens, in use and cached together
	MaxModelLen      int           // prompt plus answer in tokens; longer is 400
	AnswerTokens     int           // mean answer length; one answer has between half and one and a half of it

	// Instant answers at once, without engine, cache or accounting of prefill:
	// the server end of throughput benchmarks.
	Instant bool

	StoredMax        int           // stored responses and conversations kept, oldest evicted; 0 = store off
	Created          int64         // "created" of every object, seconds since 1970; 0 = the clock
	DeterministicIDs bool          // ids follow from the request; also on request, see HeaderDeterministic
	PingInterval     time.Duration // pings in Anthropic streams that wait for their first token; 0 = none
	Fault            Fault         // what goes wrong from the start; see Server.SetFault
}

// Default is a small fast engine: one 8k chunk takes 0.4 s.
func Default() Config {
	return Config{
		Engine:           VLLM,
		Models:           []string{"stand-in"},
		PrefillRate:      20480,
		MaxBatchedTokens: 8192,
		MaxSeqs:          256,
		TokenDelay:       10 * time.Millisecond,
		CacheBlocks:      32768,
		MaxModelLen:      1 << 20,
		AnswerTokens:     32,
		StoredMax:        1024,
	}
}

// Validate reports every field that makes no sense.
func (c Config) Validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Engine != VLLM && c.Engine != SGLang, "engine %q: want %q or %q", c.Engine, VLLM, SGLang)
	bad(len(c.Models) == 0, "models: none given")
	for i, m := range c.Models {
		bad(m == "", "models: name %d is empty", i)
	}
	bad(!(c.PrefillRate > 0), "prefill rate %v: want more than 0 tokens/s", c.PrefillRate)
	bad(c.MaxBatchedTokens < 1, "max batched tokens %d: want at least 1", c.MaxBatchedTokens)
	bad(c.MaxSeqs < 1, "max seqs %d: want at least 1", c.MaxSeqs)
	bad(c.MaxBatchedTokens < c.MaxSeqs, "max batched tokens %d: want at least max seqs %d", c.MaxBatchedTokens, c.MaxSeqs)
	bad(c.MaxQueued < 0, "max queued %d: want 0 or more", c.MaxQueued)
	bad(c.TokenDelay < 0, "token delay %v: want 0 or more", c.TokenDelay)
	bad(c.CacheBlocks < 1, "cache blocks %d: want at least 1", c.CacheBlocks)
	bad(c.MaxModelLen < 1, "max model length %d: want at least 1", c.MaxModelLen)
	bad(c.AnswerTokens < 1, "answer tokens %d: want at least 1", c.AnswerTokens)
	bad(c.StoredMax < 0, "stored max %d: want 0 or more", c.StoredMax)
	bad(c.PingInterval < 0, "ping interval %v: want 0 or more", c.PingInterval)
	return errors.Join(errs...)
}
