package pin

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// prose is generated text as engines escape it: line ends, quotes, some code.
func prose(n int) string {
	const s = `The cache holds \"blocks\" of sixteen tokens.\n\tif (a < b) { return \"x\"; }\nEach of them is shared by every request that starts alike, and goes when it was not used for long.\n\n`
	return strings.Repeat(s, n/len(s)+1)
}

func responseJSON(output string) []byte {
	return fmt.Appendf(nil, `{"id":"resp_67cb32528d6881909eb2859a55e18a85","created_at":1741369938.0,"error":null,"incomplete_details":null,"instructions":null,"metadata":{},"model":"m","object":"response","output":[%s],"parallel_tool_calls":true,"previous_response_id":"resp_67cb32528d6881909eb2859a55e18a84","conversation":{"id":"conv_67cb32528d6881909eb2859a55e18a83"},"usage":{"input_tokens":36,"output_tokens":87}}`, output)
}

func textBody(n int) []byte {
	return responseJSON(`{"id":"msg_1","content":[{"annotations":[],"text":"` + prose(n) + `","type":"output_text"}],"role":"assistant","type":"message"}`)
}

func logprobBody(n int) []byte {
	const lp = `{"token":" cache","bytes":[32,99,97,99,104,101],"logprob":-0.10536,"top_logprobs":[{"token":" cache","bytes":[32,99,97,99,104,101],"logprob":-0.10536}]}`
	return responseJSON(`{"id":"msg_1","content":[{"logprobs":[` + strings.Repeat(lp+",", n/len(lp)) + lp + `],"text":"x","type":"output_text"}],"type":"message"}`)
}

func deltaStream(n int, named bool) []byte {
	var b []byte
	b = fmt.Appendf(b, "event: response.created\ndata: {\"response\":%s,\"sequence_number\":0,\"type\":\"response.created\"}\n\n", responseJSON(""))
	for i := range n {
		if named {
			b = append(b, "event: response.output_text.delta\n"...)
		}
		b = fmt.Appendf(b, "data: {\"content_index\":0,\"delta\":\" cache\",\"item_id\":\"msg_67cb32528d6881909eb2859a55e18a85\",\"logprobs\":[],\"output_index\":0,\"sequence_number\":%d,\"type\":\"response.output_text.delta\"}\n\n", i)
	}
	return fmt.Appendf(b, "event: response.completed\ndata: {\"response\":%s,\"type\":\"response.completed\"}\n\n", textBody(n*6))
}

const benchStamp = "fra-1.0a1b2c3d.0123456789abcdef."

func BenchmarkRewriter(b *testing.B) {
	for _, c := range []struct {
		name string
		form Form
		body []byte
	}{
		{"text1MB", FormJSON, textBody(1 << 20)},
		{"logprobs1MB", FormJSON, logprobBody(1 << 20)},
		{"deltas", FormSSE, deltaStream(4096, true)},
		{"unnamedDeltas", FormSSE, deltaStream(4096, false)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			r := NewRewriter(benchStamp, c.form)
			var dst []byte
			for b.Loop() {
				r.Reset(benchStamp, c.form)
				for src := c.body; len(src) > 0; {
					n := min(len(src), 32<<10)
					dst = r.Append(dst[:0], src[:n])
					src = src[n:]
				}
				dst = r.Finish(dst[:0])
			}
		})
	}
}

// BenchmarkDecode is the yardstick: the same bodies through encoding/json.
func BenchmarkDecode(b *testing.B) {
	for name, body := range map[string][]byte{"text1MB": textBody(1 << 20), "logprobs1MB": logprobBody(1 << 20)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				var v any
				if err := json.Unmarshal(body, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadBody(b *testing.B) {
	body := []byte(`{"model":"m","input":"` + prose(1<<20) + `","previous_response_id":"resp_x"}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		ReadBody(body)
	}
}

func BenchmarkParsePath(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		ParsePath("/v1/chat/completions")
	}
}

func BenchmarkValid(b *testing.B) {
	t, err := NewTagger("fra-1", [][]byte{make([]byte, 32)})
	if err != nil {
		b.Fatal(err)
	}
	tag, _ := Parse("resp_" + t.Stamp("0a1b2c3d") + "x")
	b.ReportAllocs()
	for b.Loop() {
		if !t.Valid(tag) {
			b.Fatal("not valid")
		}
	}
}
