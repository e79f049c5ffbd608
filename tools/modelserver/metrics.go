package modelserver

import (
	"fmt"
	stdmaps "maps"
	"net/http"
	"slices"
	"strconv"
)

// page is a metrics page in the making, in Prometheus' text format.
type page struct {
	b    []byte
	name string // of the last series
}

// add writes one series, the first of a name with its HELP and TYPE lines.
func (p *page) add(kind, name, help, labels string, v float64) {
	if p.name != name {
		p.b = fmt.Appendf(p.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		p.name = name
	}
	p.b = append(p.b, name...)
	if labels != "" {
		p.b = fmt.Appendf(p.b, "{%s}", labels)
	}
	p.b = append(p.b, ' ')
	p.b = strconv.AppendFloat(p.b, v, 'g', -1, 64)
	p.b = append(p.b, '\n')
}

// metrics answers GET /metrics as the engine's exporter does.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	n := s.engine.snapshot()
	var p page
	if s.cfg.Engine == SGLang {
		s.sglangPage(&p, n)
	} else {
		s.vllmPage(&p, n)
	}
	p.add("gauge", "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", "", s.started())
	model := fmt.Sprintf("model_name=%q", s.cfg.Models[0])
	p.add("counter", "modelserver:aborted_requests_total", "Requests whose client left before the end.", model, n.Aborted)
	p.add("counter", "modelserver:steps_total", "Engine steps.", model, n.Steps)
	requests := s.Requests()
	for _, route := range slices.Sorted(stdmaps.Keys(requests)) {
		p.add("counter", "modelserver:requests_total", "Requests by route.", fmt.Sprintf("route=%q", route), float64(requests[route]))
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(p.b)))
	_, _ = w.Write(p.b)
}

func (s *Server) kvUse(n Stats) float64 { return float64(n.UsedBlocks) / float64(s.cfg.CacheBlocks) }

func (s *Server) vllmPage(p *page, n Stats) {
	l := fmt.Sprintf("engine=\"0\",model_name=%q", s.cfg.Models[0])
	p.add("gauge", "vllm:num_requests_running", "Number of requests in model execution batches.", l, float64(n.Running))
	p.add("gauge", "vllm:num_requests_waiting", "Number of requests waiting to be processed.", l, float64(n.Waiting))
	p.add("gauge", "vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason.", l+`,reason="capacity"`, float64(n.Waiting))
	p.add("gauge", "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", l, s.kvUse(n))
	p.add("gauge", "vllm:cache_config_info", "Information of the LLMEngine CacheConfig.",
		fmt.Sprintf("block_size=\"%d\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"%d\"", BlockTokens, s.cfg.CacheBlocks), 1)
	p.add("counter", "vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", l, n.CacheQueries)
	p.add("counter", "vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", l, n.CacheHits)
	p.add("counter", "vllm:prompt_tokens_total", "Number of prefill tokens processed.", l, n.PromptTokens)
	p.add("counter", "vllm:generation_tokens_total", "Number of generation tokens processed.", l, n.AnswerTokens)
	p.add("counter", "vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", l, 0)
	p.add("counter", "vllm:request_success_total", "Count of successfully processed requests.", l+`,finished_reason="stop"`, n.Finished)
}

func (s *Server) sglangPage(p *page, n Stats) {
	l := fmt.Sprintf("model_name=%q", s.cfg.Models[0])
	p.add("gauge", "sglang:num_running_reqs", "The number of running requests.", l, float64(n.Running))
	p.add("gauge", "sglang:num_queue_reqs", "The number of requests in the waiting queue.", l, float64(n.Waiting))
	p.add("gauge", "sglang:token_usage", "The token usage.", l, s.kvUse(n))
	p.add("gauge", "sglang:num_used_tokens", "The number of used tokens.", l, float64(n.UsedBlocks*BlockTokens))
	p.add("gauge", "sglang:max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", l, float64(s.cfg.CacheBlocks*BlockTokens))
	p.add("gauge", "sglang:cache_config_info", "Information of the cache config.",
		fmt.Sprintf("%s,num_pages=\"%d\",page_size=\"%d\"", l, s.cfg.CacheBlocks, BlockTokens), 1)
	rate := 0.0
	if n.CacheQueries > 0 {
		rate = n.CacheHits / n.CacheQueries
	}
	p.add("gauge", "sglang:cache_hit_rate", "The prefix cache hit rate.", l, rate)
	p.add("counter", "sglang:prompt_tokens_total", "Number of prefill tokens processed.", l, n.PromptTokens)
	p.add("counter", "sglang:generation_tokens_total", "Number of generation tokens processed.", l, n.AnswerTokens)
	p.add("counter", "sglang:cached_tokens_total", "Number of cached prompt tokens.", l, n.CacheHits)
	p.add("counter", "sglang:num_requests_total", "Number of requests processed.", l, n.Finished)
}
