package poll

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the generated pages under testdata anew")

// vllmPage is a metrics page of the shape and size that a busy vLLM shows: the
// series names are real, the figures are made up.
func vllmPage(engines int) []byte {
	var b bytes.Buffer
	const model = `model_name="meta-llama/Llama-3.1-8B-Instruct"`
	head := func(kind, name, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	each := func(f func(labels string, engine int)) {
		for e := range engines {
			f(fmt.Sprintf(`engine="%d",%s`, e, model), e)
		}
	}
	head("counter", "python_gc_objects_collected_total", "Objects collected during gc")
	for g := range 3 {
		fmt.Fprintf(&b, "python_gc_objects_collected_total{generation=\"%d\"} %d.0\n", g, 9000+g)
	}
	head("gauge", "process_virtual_memory_bytes", "Virtual memory size in bytes.")
	b.WriteString("process_virtual_memory_bytes 2.6418782208e+010\n")
	head("gauge", "process_start_time_seconds", "Start time of the process since unix epoch in seconds.")
	b.WriteString("process_start_time_seconds 1.76400012345e+09\n")
	gauge := func(name, help string, value func(engine int) string) {
		head("gauge", name, help)
		each(func(l string, e int) { fmt.Fprintf(&b, "%s{%s} %s\n", name, l, value(e)) })
	}
	gauge("vllm:num_requests_running", "Number of requests in model execution batches.", func(e int) string { return fmt.Sprintf("%d.0", 12+e) })
	gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", func(e int) string { return fmt.Sprintf("%d.0", 3+e) })
	head("gauge", "vllm:num_requests_waiting_by_reason", "Number of requests waiting to be processed, by reason.")
	each(func(l string, e int) {
		fmt.Fprintf(&b, "vllm:num_requests_waiting_by_reason{%s,reason=\"capacity\"} %d.0\n", l, 3+e)
		fmt.Fprintf(&b, "vllm:num_requests_waiting_by_reason{%s,reason=\"deferred\"} 0.0\n", l)
	})
	gauge("vllm:engine_sleep_state", "Engine sleep state.", func(int) string { return "0.0" })
	gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", func(e int) string { return fmt.Sprintf("0.%d25", 4+e) })
	counter := func(name, help string, value func(engine int) string) {
		head("counter", name, help)
		each(func(l string, e int) { fmt.Fprintf(&b, "%s_total{%s} %s\n", name, l, value(e)) })
		head("gauge", name+"_created", help)
		each(func(l string, _ int) { fmt.Fprintf(&b, "%s_created{%s} 1.7640001534123142e+09\n", name, l) })
	}
	counter("vllm:prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", func(int) string { return "1.23456789e+08" })
	counter("vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", func(int) string { return "7.5e+07" })
	counter("vllm:external_prefix_cache_queries", "External prefix cache queries.", func(int) string { return "0.0" })
	counter("vllm:mm_cache_queries", "Multi-modal cache queries.", func(int) string { return "0.0" })
	counter("vllm:num_preemptions", "Cumulative number of preemption from the engine.", func(int) string { return "4.0" })
	counter("vllm:prompt_tokens", "Number of prefill tokens processed.", func(int) string { return "1.25e+08" })
	counter("vllm:generation_tokens", "Number of generation tokens processed.", func(int) string { return "9.87654e+06" })
	head("counter", "vllm:request_success", "Count of successfully processed requests.")
	for _, r := range []string{"stop", "length", "abort", "error"} {
		each(func(l string, _ int) {
			fmt.Fprintf(&b, "vllm:request_success_total{%s,finished_reason=%q} 1042.0\n", l, r)
		})
	}
	histogram := func(name string, bounds []float64) {
		head("histogram", name, "Histogram of "+name+".")
		each(func(l string, e int) {
			for i, le := range bounds {
				fmt.Fprintf(&b, "%s_bucket{%s,le=\"%v\"} %d.0\n", name, l, le, i*(7+e))
			}
			fmt.Fprintf(&b, "%s_bucket{%s,le=\"+Inf\"} %d.0\n", name, l, len(bounds)*9)
			fmt.Fprintf(&b, "%s_count{%s} %d.0\n%s_sum{%s} %d.125\n", name, l, len(bounds)*9, name, l, len(bounds)*11)
		})
	}
	tokens := []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
	seconds := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	short := []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	for _, name := range []string{"iteration_tokens_total", "request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens", "request_params_max_tokens", "request_params_n", "request_prefill_kv_computed_tokens"} {
		histogram("vllm:"+name, tokens)
	}
	for _, name := range []string{"time_to_first_token_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds", "request_time_per_output_token_seconds"} {
		histogram("vllm:"+name, short)
	}
	for _, name := range []string{"e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds"} {
		histogram("vllm:"+name, seconds)
	}
	head("gauge", "vllm:cache_config_info", "Information of the LLMEngine CacheConfig")
	for e := range engines {
		fmt.Fprintf(&b, "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",calculate_kv_scales=\"False\",cpu_offload_gb=\"0\",enable_prefix_caching=\"True\",engine=\"%d\",gpu_memory_utilization=\"0.9\",is_attention_free=\"False\",kv_cache_memory_bytes=\"None\",mamba_block_size=\"None\",mamba_cache_dtype=\"auto\",num_cpu_blocks=\"None\",num_gpu_blocks=\"27851\",num_gpu_blocks_override=\"None\",prefix_caching_hash_algo=\"sha256\",sliding_window=\"None\",swap_space=\"4\"} 1.0\n", e)
	}
	head("gauge", "http_requests_total", "Total number of requests by method, status and handler.")
	for _, h := range []string{"/v1/chat/completions", "/v1/completions", "/v1/models", "/metrics", "/health"} {
		fmt.Fprintf(&b, "http_requests_total{handler=%q,method=\"POST\",status=\"2xx\"} 1234.0\n", h)
	}
	lows := []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}
	head("histogram", "http_request_duration_highr_seconds", "Latency with many buckets but no API specific labels.")
	for i, le := range lows {
		fmt.Fprintf(&b, "http_request_duration_highr_seconds_bucket{le=\"%v\"} %d.0\n", le, i*3)
	}
	return b.Bytes()
}

const pageFile = "testdata/vllm.prom"

// TestPageOnFile keeps the stored page the one that the generator makes.
func TestPageOnFile(t *testing.T) {
	want := vllmPage(1)
	if *update {
		if err := os.WriteFile(pageFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from what the generator makes; run with -update", pageFile)
	}
	if n := len(got); n < 30<<10 || n > 60<<10 {
		t.Errorf("%s has %d bytes, want 30 to 60 KiB as real pages have", pageFile, n)
	}
}
