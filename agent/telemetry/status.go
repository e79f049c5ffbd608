// Package telemetry shows what the agent knows: metrics, the status document
// and the admin listener that serves them.
package telemetry

import "time"

// Status is the document of /v1/status. Names are promises to its readers.
type Status struct {
	Version       string  `json:"version"`
	UptimeSeconds float64 `json:"uptime_seconds"`
	Site          string  `json:"site"`
	Listen        string  `json:"listen"`
	Policy        string  `json:"policy"`
	TauTokens     int64   `json:"tau_tokens"`
	Shared        bool    `json:"shared"`         // others send requests to the backends too, as polls show
	SharedKeys    bool    `json:"shared_keys"`    // other agents may have the key that prompts are hashed with
	Unlike        bool    `json:"unlike"`         // there is a model whose prompts hardly ever begin alike, as usage tells (priced-spread)
	Hold          *Hold   `json:"hold,omitempty"` // nil: off, and nothing is held
	Draining      bool    `json:"draining"`
	ActiveStreams int64   `json:"active_requests"` // those that are held too
	TagKey        bool    `json:"tag_key"`         // false: any well-formed tag is accepted
	// PinVerdicts counts the requests about stored responses and conversations
	// by what became of them; verdicts that did not occur are left out.
	PinVerdicts map[string]uint64 `json:"pin_verdicts"`
	Splice      SpliceStatus      `json:"splice"`
	Backends    []BackendStatus   `json:"backends"`
}

// Hold says which requests the agent keeps because no backend has KV memory for them.
type Hold struct {
	LimitSeconds float64    `json:"limit_seconds"` // that one waits at most; 0: holding is off
	Held         int        `json:"held"`          // now
	Waited       *Quantiles `json:"held_seconds,omitempty"`
}

// SpliceStatus says whether the kernel carries streams, and how much.
type SpliceStatus struct {
	Mode     string            `json:"mode"`  // off | auto | required
	State    string            `json:"state"` // on | off
	Reason   string            `json:"reason,omitempty"`
	Bytes    uint64            `json:"spliced_bytes"`
	Chunks   uint64            `json:"spliced_chunks"`
	Outcomes map[string]uint64 `json:"responses,omitempty"` // responses by result and reason
	Reasons  map[string]uint64 `json:"kernel_counters,omitempty"`
}

// BackendStatus is one row of the routing table.
type BackendStatus struct {
	Site           string            `json:"site"`
	Name           string            `json:"name"`
	URL            string            `json:"url"`
	Models         []string          `json:"models"`
	Admitted       bool              `json:"admitted"`
	Why            string            `json:"why,omitempty"` // why not admitted, or that it is on trial after an ejection
	Measured       bool              `json:"measured"`
	Queue          int               `json:"queue_depth"` // worst in the poll window
	Waiting        int               `json:"waiting"`
	Running        int               `json:"running"`
	KVUse          float64           `json:"kv_use"`
	Inflight       int               `json:"inflight_requests"`
	UncachedTokens int64             `json:"inflight_uncached_tokens"`
	IndexEntries   int               `json:"prefix_index_entries"`
	IndexCapacity  int               `json:"prefix_index_capacity_blocks,omitempty"` // 0: bounded in keys
	SizeFactor     float64           `json:"prefix_index_size_factor"`               // of its capacity, to what the engine or the configuration says
	MatchedTokens  int64             `json:"matched_tokens"`
	PromptTokens   int64             `json:"prompt_tokens"`
	CachedTokens   int64             `json:"reported_cached_tokens"` // as the engine said
	UsageTokens    int64             `json:"reported_prompt_tokens"`
	Engine         string            `json:"engine,omitempty"`     // configured, or found out by polling
	PollError      string            `json:"poll_error,omitempty"` // of the last poll; gone when one works
	LastPollError  *PollError        `json:"last_poll_error,omitempty"`
	Picks          map[string]uint64 `json:"picks"` // by outcome
	TTFT           *Quantiles        `json:"ttft_seconds,omitempty"`
	ChunkGap       *Quantiles        `json:"chunk_gap_seconds,omitempty"`
	SplicedBytes   uint64            `json:"spliced_bytes"`
	SplicedChunks  uint64            `json:"spliced_chunks"`
	PollErrors     uint64            `json:"poll_errors"`
}

// PollError is the last request of a poll that brought nothing. It stays, with its
// time; the polls may work since, or have worked without it: an engine without
// metrics is asked for its health.
type PollError struct {
	Error string    `json:"error"`
	At    time.Time `json:"at"`
}

// Quantiles are estimated from a histogram's buckets: the upper bound of the
// bucket that holds the quantile.
type Quantiles struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
}
