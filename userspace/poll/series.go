package poll

// field is something of a Sample that series give.
type field uint8

const (
	fieldNone      field = iota
	fieldWaiting         // sum over engines
	fieldRunning         // sum
	fieldKV              // largest
	fieldPrompt          // counter, sum
	fieldCached          // counter, sum
	fieldStart           // latest
	fieldCapacity        // tokens, sum
	fieldPageSize        // tokens, largest
	fieldPages           // sum
	fieldCacheInfo       // labels
	fieldCount
)

// series is what one exact name gives. Engines renamed some: of a page that
// has several names of one field, the lowest rank counts and the rest is the
// same figure again.
type series struct {
	field field
	rank  uint8
}

const ranks = 4

// vllmSeries looks a vLLM name up, without its "vllm:". Exact names only:
// num_requests_waiting_by_reason would count the queue a second time.
func vllmSeries(name []byte) series {
	switch string(name) {
	case "num_requests_waiting":
		return series{fieldWaiting, 0}
	case "num_requests_running":
		return series{fieldRunning, 0}
	case "kv_cache_usage_perc":
		return series{fieldKV, 0}
	case "gpu_cache_usage_perc": // before 0.10
		return series{fieldKV, 1}
	case "prompt_tokens_total":
		return series{fieldPrompt, 0}
	case "prompt_tokens":
		return series{fieldPrompt, 1}
	case "prefix_cache_hits_total":
		return series{fieldCached, 0}
	case "prefix_cache_hits":
		return series{fieldCached, 1}
	case "gpu_prefix_cache_hits_total": // before 0.10
		return series{fieldCached, 2}
	case "gpu_prefix_cache_hits":
		return series{fieldCached, 3}
	case "cache_config_info":
		return series{fieldCacheInfo, 0}
	}
	return series{}
}

// sglangSeries looks an SGLang name up, without its "sglang:".
func sglangSeries(name []byte) series {
	switch string(name) {
	case "num_queue_reqs":
		return series{fieldWaiting, 0}
	case "num_running_reqs":
		return series{fieldRunning, 0}
	case "token_usage":
		return series{fieldKV, 0}
	case "prompt_tokens_total":
		return series{fieldPrompt, 0}
	case "cached_tokens_total":
		return series{fieldCached, 0}
	case "max_total_num_tokens":
		return series{fieldCapacity, 0}
	case "page_size": // since 0.5.11; labels of cache_config_info before
		return series{fieldPageSize, 0}
	case "num_pages":
		return series{fieldPages, 0}
	case "cache_config_info":
		return series{fieldCacheInfo, 0}
	}
	return series{}
}
