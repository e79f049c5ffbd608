package proxy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestUsage reads what engines say, in each API's shape, streamed and not (G20).
func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		want       usage
		ok         bool
	}{
		{"chat", `{"id":"x","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":12,"total_tokens":15,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}},"prompt_logprobs":null}`, usage{12, 8, 3}, true},
		{"chat, no details", `{"usage":{"prompt_tokens":12,"total_tokens":15,"completion_tokens":3,"prompt_tokens_details":null}}`, usage{12, -1, 3}, true},
		{"chat, nothing cached", `{"usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}`, usage{12, 0, 3}, true},
		{"messages, nothing cached", `{"usage":{"input_tokens":12,"cache_read_input_tokens":0,"output_tokens":3}}`, usage{12, 0, 3}, true},
		{"messages, all new", `{"usage":{"input_tokens":2,"cache_creation_input_tokens":10,"output_tokens":3}}`, usage{12, -1, 3}, true},
		{"chat, spaces", "{ \"usage\" : { \"prompt_tokens\" : 12 ,\n \"completion_tokens\" : 3 } }", usage{12, -1, 3}, true},
		{"chat stream", "data: {\"choices\":[{}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n", usage{5, -1, 7}, true},
		{"chat stream, continuous usage", "data: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n", usage{5, -1, 2}, true},
		{"responses", `{"object":"response","output":[],"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":64},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":4},"total_tokens":109},"user":null}`, usage{100, 64, 9}, true},
		{"responses stream", "event: response.created\ndata: {\"response\":{\"usage\":null}}\n\nevent: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":100,\"output_tokens\":9,\"input_tokens_details\":{\"cached_tokens\":64}}}}\n\n", usage{100, 64, 9}, true},
		{"messages", `{"type":"message","usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":85,"output_tokens":7}}`, usage{100, 85, 7}, true},
		{"messages stream: prompt in the first event", "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n" + strings.Repeat("event: content_block_delta\ndata: {\"delta\":{\"text\":\"word\"}}\n\n", 500) + "event: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n", usage{25, -1, 15}, true},
		{"text that looks like usage", `{"choices":[{"text":"\"usage\":{\"prompt_tokens\":1}"}]}`, usage{}, false},
		{"real usage before such text", `{"usage":{"prompt_tokens":4,"completion_tokens":2},"text":"\"usage\":{\"prompt_tokens\":1}"}`, usage{4, -1, 2}, true},
		{"cut off", `{"usage":{"prompt_tokens":4,"completion_to`, usage{}, false},
		{"wrong types", `{"usage":{"prompt_tokens":"4","completion_tokens":[1],"x":{"y":{"z":{"w":1}}}}}`, usage{}, false},
		{"huge and negative numbers", `{"usage":{"prompt_tokens":99999999999999999999,"completion_tokens":-3}}`, usage{}, false},
		{"fraction", `{"usage":{"prompt_tokens":1.5,"completion_tokens":2}}`, usage{0, -1, 2}, true},
		{"none", `{"choices":[]}`, usage{}, false},
		{"empty", ``, usage{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, piece := range []int{1, 7, 100, 1 << 20} {
				w := new(usageWindow)
				for rest := []byte(tc.body); len(rest) > 0; {
					n := min(piece, len(rest))
					w.see(rest[:n])
					rest = rest[n:]
				}
				if got, ok := w.usage(); got != tc.want || ok != tc.ok {
					t.Errorf("in pieces of %d: %+v %v, want %+v %v", piece, got, ok, tc.want, tc.ok)
				}
			}
		})
	}
}

// TestUsageWindowKeepsTheEnd: however the body is cut, the last tailBytes are there.
func TestUsageWindowKeepsTheEnd(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		w, all := new(usageWindow), []byte(nil)
		for range rnd.IntN(40) {
			p := make([]byte, rnd.IntN(2*tailBytes))
			for i := 0; i < len(p); i += 16 { // enough to tell places apart
				p[i] = byte(rnd.Uint32())
			}
			w.see(p)
			all = append(all, p...)
		}
		want := all[max(0, len(all)-tailBytes):]
		if !strings.HasSuffix(string(w.tail), string(want)) {
			t.Fatal("the end is not what was written last")
		}
		if len(w.tail) > 2*tailBytes || cap(w.tail) > 3*tailBytes || len(w.head) > headBytes || cap(w.head) > 2*headBytes {
			t.Fatalf("windows grew to %d and %d", cap(w.tail), cap(w.head))
		}
	}
}

// FuzzUsage: no input may panic, nor give a number that cannot be.
func FuzzUsage(f *testing.F) {
	f.Add(`{"usage":{"prompt_tokens":4,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}`)
	f.Add(`"usage":{"a":{"b":{"c":{"d":{}}}}}`)
	f.Add(`"usage":{"a":[1,2],"b":"\"","c":tru`)
	f.Fuzz(func(t *testing.T, body string) {
		w := new(usageWindow)
		w.see([]byte(body))
		if u, ok := w.usage(); ok && (u.prompt < 0 || u.cached < -1 || u.completion < 0) {
			t.Errorf("%s", fmt.Sprint(u))
		}
	})
}
