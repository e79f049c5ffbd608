// Package load keeps what each backend is busy with: the agent's own requests
// and uncached prompt tokens in flight, the polled queue in a time window, and
// whether the backend admits new requests.
//
// It is pure: the time is passed in, as a monotonic instant counted from any
// fixed moment. All methods may be called concurrently.
package load

// Sample is one poll of an engine, summed over its engines (data parallel ranks).
type Sample struct {
	Waiting       int     // requests in the engine's queue
	Running       int     // requests being served
	KVUse         float64 // largest share of KV blocks in use over the engines, 0..1
	CapacityTok   int64   // KV capacity in tokens; 0 = the engine does not say
	BlockTok      int     // tokens per KV block; 0 = the engine does not say
	StartTime     float64 // process start, seconds since 1970; 0 = the engine does not say
	PromptTokens  float64 // counter of prompt tokens; a step back is a restart
	CachedTokens  float64 // counter of prompt tokens served from the prefix cache
	HasQueue      bool    // Waiting and Running were present
	HasKV         bool    // KVUse was present
	HasStartTime  bool
	HasPromptToks bool
}
