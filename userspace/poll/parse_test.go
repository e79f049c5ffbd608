package poll

import (
	"bytes"
	"errors"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tautline/tautline/userspace/load"
)

// parsePage reads a page that is held whole.
func parsePage(engine string, page []byte, models ...string) (load.Sample, error) {
	var p parser
	p.reset(engine, models)
	for line := range bytes.SplitSeq(page, []byte("\n")) {
		p.line(line)
	}
	return p.sample()
}

func TestParser(t *testing.T) {
	for name, tc := range map[string]struct {
		engine string
		models []string
		page   string
		want   load.Sample
		err    error
	}{
		"vllm": {
			page: `vllm:num_requests_running{engine="0",model_name="m"} 5.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1e3
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 400
process_start_time_seconds 1.7e9
`,
			want: load.Sample{
				Waiting: 2, Running: 5, KVUse: 0.25, CapacityTok: 16000, BlockTok: 16, StartTime: 1.7e9,
				PromptTokens: 1000, CachedTokens: 400, HasQueue: true, HasKV: true, HasStartTime: true, HasPromptToks: true,
			},
		},
		"old names": { // vLLM 0.10 renamed
			page: "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc 0.5\n" +
				"vllm:gpu_prefix_cache_hits_total 7\nvllm:prompt_tokens 9\n",
			want: load.Sample{Running: 1, KVUse: 0.5, CachedTokens: 7, PromptTokens: 9, HasQueue: true, HasKV: true, HasPromptToks: true},
		},
		"old and new name of one figure": {
			page: "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n" +
				"vllm:gpu_prefix_cache_hits_total 7\nvllm:prefix_cache_hits_total 7\nvllm:prefix_cache_hits 7\n",
			want: load.Sample{Running: 1, CachedTokens: 7, HasQueue: true},
		},
		"queue by reason is no second queue": {
			page: "vllm:num_requests_running 1\nvllm:num_requests_waiting 4\n" +
				`vllm:num_requests_waiting_by_reason{reason="capacity"} 4` + "\n",
			want: load.Sample{Running: 1, Waiting: 4, HasQueue: true},
		},
		"engines summed, worst KV": {
			page: `vllm:num_requests_running{engine="0"} 5
vllm:num_requests_running{engine="1"} 6
vllm:num_requests_waiting{engine="0"} 2
vllm:num_requests_waiting{engine="1"} 0
vllm:kv_cache_usage_perc{engine="0"} 0.9
vllm:kv_cache_usage_perc{engine="1"} 0.1
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="100"} 1
`,
			want: load.Sample{Running: 11, Waiting: 2, KVUse: 0.9, CapacityTok: 3200, BlockTok: 16, HasQueue: true, HasKV: true},
		},
		"capacity as the engine states it": { // hybrid models: not blocks x size
			page: "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n" +
				`vllm:cache_config_info{block_size="64",kv_cache_size_tokens="862437",num_gpu_blocks="9120"} 1` + "\n",
			want: load.Sample{CapacityTok: 862437, BlockTok: 64, HasQueue: true},
		},
		"capacity not known": {
			page: "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n" +
				`vllm:cache_config_info{block_size="16",kv_cache_size_tokens="None",num_gpu_blocks="None"} 1` + "\n",
			want: load.Sample{BlockTok: 16, HasQueue: true},
		},
		"one of several models": {
			models: []string{"b"},
			page: `vllm:num_requests_running{model_name="a"} 5
vllm:num_requests_running{model_name="b"} 1
vllm:num_requests_waiting{model_name="a"} 9
vllm:num_requests_waiting{model_name="b"} 2
process_start_time_seconds 3
`,
			want: load.Sample{Running: 1, Waiting: 2, HasQueue: true, StartTime: 3, HasStartTime: true},
		},
		"adapter's name is no label": {
			models: []string{"my-lora"},
			page:   "vllm:num_requests_running{model_name=\"base\"} 5\nvllm:num_requests_waiting{model_name=\"base\"} 1\n",
			want:   load.Sample{Running: 5, Waiting: 1, HasQueue: true},
		},
		"sglang": {
			page: `sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 3.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 7.0
sglang:num_grammar_queue_reqs{model_name="m"} 4.0
sglang:token_usage{model_name="m"} 0.4
sglang:max_total_num_tokens{model_name="m"} 161721.0
sglang:page_size{model_name="m"} 64
sglang:num_pages{model_name="m"} 2526
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
sglang:cached_tokens_total{cache_source="device",model_name="m"} 5
`,
			want: load.Sample{
				Running: 3, Waiting: 7, KVUse: 0.4, CapacityTok: 161721, BlockTok: 64,
				PromptTokens: 8128902, CachedTokens: 5, HasQueue: true, HasKV: true, HasPromptToks: true,
			},
		},
		"sglang capacity by labels": {
			page: "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n" +
				`sglang:cache_config_info{num_pages="100",page_size="16"} 1` + "\n",
			want: load.Sample{CapacityTok: 1600, BlockTok: 16, HasQueue: true},
		},
		"sglang capacity by pages": {
			page: "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:page_size 16\nsglang:num_pages 10\n",
			want: load.Sample{CapacityTok: 160, BlockTok: 16, HasQueue: true},
		},
		"sglang queue by priority is no second queue": {
			page: `sglang:num_running_reqs{priority=""} 3
sglang:num_queue_reqs{priority=""} 5
sglang:num_queue_reqs{priority="1"} 4
sglang:num_queue_reqs{priority="2"} 1
`,
			want: load.Sample{Running: 3, Waiting: 5, HasQueue: true},
		},
		"other engine's series": {engine: SGLang, page: "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n", err: ErrNoSeries},
		"html":                  {page: "<!DOCTYPE html><html><body>vllm:num_requests_running 1</body></html>", err: ErrNoSeries},
		"empty":                 {err: ErrNoSeries},
		"start time alone":      {page: "process_start_time_seconds 5\n", err: ErrNoSeries},
		"half a queue":          {page: "vllm:num_requests_running 3\n", want: load.Sample{Running: 3}},
		"odd lines": {
			page: "vllm:num_requests_running 1 1700000000000\r\nvllm:num_requests_waiting\t2\n" +
				"vllm:num_requests_waiting{model_name=\"x\n" + "vllm:num_requests_waiting{} NaN\nvllm:num_requests_waiting -3\n" +
				"vllm:num_requests_waiting +Inf\nvllm:num_requests_waiting\nvllm:num_requests_waiting x\n" +
				"vllm:kv_cache_usage_perc{a=\"}\\\"1\",b=\"2\"} 7\n",
			want: load.Sample{Running: 1, Waiting: 2, KVUse: 1, HasQueue: true, HasKV: true},
		},
		"absurd figures": {
			page: "vllm:num_requests_running 1e300\nvllm:num_requests_waiting 1e300\n",
			want: load.Sample{Running: maxCount, Waiting: maxCount, HasQueue: true},
		},
		"no end of line": {page: "vllm:num_requests_running 1\nvllm:num_requests_waiting 2", want: load.Sample{Running: 1, Waiting: 2, HasQueue: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parsePage(tc.engine, []byte(tc.page), tc.models...)
			if !errors.Is(err, tc.err) || got != tc.want {
				t.Errorf("got  %+v, %v\nwant %+v, %v", got, err, tc.want, tc.err)
			}
		})
	}
}

func TestParseRealisticPage(t *testing.T) {
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	want := load.Sample{
		Waiting: 3, Running: 12, KVUse: 0.425, CapacityTok: 27851 * 16, BlockTok: 16, StartTime: 1.76400012345e+09,
		PromptTokens: 1.25e8, CachedTokens: 7.5e7, HasQueue: true, HasKV: true, HasStartTime: true, HasPromptToks: true,
	}
	got, err := parsePage("", page)
	if err != nil || got != want {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = parsePage("", page) }); n != 0 {
		t.Errorf("%v allocations a page, want none", n)
	}
}

// TestInitialsCoverEveryName: a name that begins with a letter of no table
// would never be found.
func TestInitialsCoverEveryName(t *testing.T) {
	src, err := os.ReadFile("series.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, line := range strings.Split(string(src), "\n") {
		_, rest, ok := strings.Cut(line, "case \"")
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, "\"")
		found++
		v, s := vllmSeries([]byte(name)), sglangSeries([]byte(name))
		if v.field != fieldNone && !vllmInitial[name[0]] || s.field != fieldNone && !sglangInitial[name[0]] {
			t.Errorf("%s: its first letter is in no table", name)
		}
	}
	if found < 20 {
		t.Errorf("%d names found in series.go, want all", found)
	}
}

// A sample line, as the text format defines it; labels may hold anything
// between their quotes.
var sampleLine = regexp.MustCompile(`^(vllm:num_requests_(?:waiting|running))` +
	`(?:[ \t]*\{(?:[ ,]*(?:[^=} ,][^=]*)?="(?:[^"\\]|\\.)*")*[ ,]*\}[ \t]*|[ \t]+)([^ \t\r]+)(?:[ \t\r].*)?$`)

// slowParse is an obvious second reading of the queue of a vLLM page: a
// regular expression a line. It takes no stand on labels of priority.
func slowParse(page string) (waiting, running float64, hasWaiting, hasRunning bool) {
	for _, line := range strings.Split(page, "\n") {
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			continue
		}
		if m[1] == "vllm:num_requests_waiting" {
			waiting, hasWaiting = waiting+v, true
		} else {
			running, hasRunning = running+v, true
		}
	}
	return waiting, running, hasWaiting, hasRunning
}

func FuzzParser(f *testing.F) {
	f.Add(string(vllmPage(2)[:4096]))
	f.Add("vllm:num_requests_waiting{a=\"\\\"\",model_name=\"m\"} 1\nvllm:num_requests_running 2\r\n# x\n")
	f.Add("sglang:num_queue_reqs{priority=\"\"} 1\n")
	f.Add("vllm:num_requests_waiting{} 1 170000\nvllm:num_requests_waiting_by_reason{reason=\"x\"} 1\nvllm:num_requests_running{ , a=\"}\" , } 0x1p-2\n")
	f.Fuzz(func(t *testing.T, page string) {
		s, err := parsePage(VLLM, []byte(page))
		if err != nil && s != (load.Sample{}) {
			t.Fatalf("a sample beside an error: %+v", s)
		}
		if s.Waiting < 0 || s.Running < 0 || s.KVUse < 0 || s.KVUse > 1 || s.CapacityTok < 0 || s.BlockTok < 0 {
			t.Fatalf("figure out of range: %+v", s)
		}
		if !utf8.ValidString(page) || strings.Contains(page, "priority") {
			return
		}
		w, r, hasW, hasR := slowParse(page)
		if (hasW && hasR) != s.HasQueue {
			t.Fatalf("has queue: got %v, want %v and %v", s.HasQueue, hasW, hasR)
		}
		if s.HasQueue && (s.Waiting != int(count(w)) || s.Running != int(count(r))) {
			t.Fatalf("queue %d, %d; want %v, %v", s.Waiting, s.Running, w, r)
		}
	})
}

func BenchmarkParsePage(b *testing.B) {
	page := vllmPage(1)
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parsePage("", page); err != nil {
			b.Fatal(err)
		}
	}
}
