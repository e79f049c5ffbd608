package pin

import (
	"bytes"
	"strings"
	"testing"
)

const testStamp = "zz9.0a1b2c3d.0123456789abcdef."

// rewrite passes the body through in one piece.
func rewrite(form Form, body []byte) []byte {
	r := NewRewriter(testStamp, form)
	return r.Finish(r.Append(nil, body))
}

// A case is written as its expected output, with "@" where the stamp goes.
type rewriteCase struct {
	name string
	form Form
	want string
}

func (c rewriteCase) in() []byte  { return []byte(strings.ReplaceAll(c.want, "@", "")) }
func (c rewriteCase) out() []byte { return []byte(strings.ReplaceAll(c.want, "@", testStamp)) }

var rewriteCases = []rewriteCase{
	// the response's own object
	{"response", FormJSON, `{"id":"resp_@1","object":"response","previous_response_id":"resp_@0","conversation":{"id":"conv_@2"},"output":[]}`},
	{"conversation", FormJSON, `{"id":"conv_@1","object":"conversation","created_at":1,"metadata":{"id":"conv_3"}}`},
	{"conversation as a string", FormJSON, `{"conversation":"conv_@1","conversation_id":"conv_@2","response_id":"resp_@3"}`},
	{"deleted response", FormJSON, `{"id":"resp_@1","object":"response","deleted":true}`},
	{"deleted conversation", FormJSON, `{"id":"conv_@1","object":"conversation.deleted","deleted":true}`},
	{"compaction", FormJSON, `{"id":"resp_@1","object":"response.compaction","output":[{"type":"compaction","id":"cmp_1"}]}`},
	{"envelope", FormJSON, `{"type":"response.completed","response":{"output":[{"id":"resp_1"}],"id":"resp_@2","conversation":{"id":"conv_@3","x":{"id":"conv_4"}}}}`},
	{"white space", FormJSON, " {\n\t\"id\" :\r\n \"resp_@1\" , \"conversation\" : { \"id\" : \"conv_@2\" } }\n"},
	{"members behind a conversation", FormJSON, `{"conversation":{"id":"conv_@1","z":[{}]},"id":"resp_@1","response":{"conversation":{"id":"conv_@2"},"id":"resp_@3"},"previous_response_id":"resp_@4"}`},
	{"duplicates", FormJSON, `{"id":"resp_@1","id":"resp_@2"}`},
	{"escapes in value and key", FormJSON, `{"\u0069d":"\u0072esp\u005f@\u00e9\"\\","previous_response\u005fid":"resp_@1\n"}`},
	{"long ids", FormJSON, `{"id":"resp_@` + strings.Repeat("x", 300) + `","previous_response_id":"resp_@` + strings.Repeat(`\u0041`, 300) + `"}`},
	{"periods in the id", FormJSON, `{"id":"resp_@a.b.c.d","previous_response_id":"resp_@zz9.0a1b2c3d.x"}`},
	{"empty and null", FormJSON, `{"id":"","previous_response_id":null,"conversation":null,"error":null,"response":null}`},
	{"no id", FormJSON, `{"id":"resp_","previous_response_id":"resp","conversation":"con","conversation_id":"Resp_1","response_id":" resp_1"}`},
	{"other types", FormJSON, `{"id":1,"previous_response_id":["resp_1"],"conversation":[{"id":"conv_1"}],"conversation_id":{"id":"conv_1"},"response_id":true}`},

	// never twice, ours or another gateway's
	{"tagged already", FormJSON, `{"id":"resp_fra.0a1b2c3d..1","previous_response_id":"resp_ams.0a1b2c3d.0123456789abcdef.x.y","conversation":"conv_\u0066ra.0a1b2c3d..1"}`},
	{"almost tagged", FormJSON, `{"id":"resp_@fra.0a1b2c3d..","previous_response_id":"resp_@Fra.0a1b2c3d..x","conversation":"conv_@fra.0A1b2c3d..x"}`},
	{"longest tag", FormJSON, `{"id":"resp_` + strings.Repeat("a", 63) + `.0a1b2c3d.0123456789abcdef.x"}`},
	{"longer than any tag", FormJSON, `{"id":"resp_@` + strings.Repeat("a", 64) + `.0a1b2c3d.0123456789abcdef.x"}`},

	// what is not the response's own stays
	{"items", FormJSON, `{"output":[{"id":"resp_1","call_id":"resp_2","response_id":"resp_3","content":[{"text":"{\"id\":\"resp_4\"}"}]}],"id":"resp_@5"}`},
	{"metadata", FormJSON, `{"metadata":{"id":"resp_1","conversation":{"id":"conv_1"},"response":{"id":"resp_2"}},"id":"resp_@3"}`},
	{"input and tools", FormJSON, `{"instructions":"resp_1","input":[{"id":"resp_2"}],"tools":[{"id":"resp_3","parameters":{"id":"resp_4"}}],"id":"resp_@5"}`},
	{"list", FormJSON, `{"object":"list","data":[{"id":"resp_1"},{"id":"msg_1"}],"first_id":"resp_1","last_id":"msg_1","has_more":false}`},
	{"input_tokens", FormJSON, `{"object":"response.input_tokens","input_tokens":11}`},
	{"user's quotes and backslashes", FormJSON, `{"instructions":"\\\"id\":\"resp_1\\\\","x":"\\","user":"\"","id":"resp_@1"}`},
	{"deep", FormJSON, `{"x":` + strings.Repeat(`[{"id":"resp_1","y":`, 40) + `"}]"` + strings.Repeat("}]", 40) + `,"id":"resp_@1"}`},
	{"envelope in an envelope", FormJSON, `{"response":{"response":{"id":"resp_1"},"id":"resp_@1"}}`},
	{"keys alike", FormJSON, `{"ids":"resp_1","Id":"resp_1","item_id":"resp_1","previous_response_ids":"resp_1","previous_response_id_":"resp_1","previous_response":"resp_1"}`},
	{"not an object", FormJSON, `["id","resp_1",{"id":"resp_1"}]`},
	{"a string", FormJSON, `"resp_1"`},
	{"a number", FormJSON, `12`},
	{"nothing", FormJSON, ``},
	{"UTF-8", FormJSON, "{\"\xc3\xa9\":\"\xf0\x9f\x98\x80\",\"id\":\"resp_@\xc3\xa9\"}"},

	// errors: engines quote the id that they were asked for
	{"vLLM's error", FormError, `{"error":{"message":"Response with id 'resp_@1' not found.","type":"invalid_request_error","param":"response_id","code":404}}`},
	{"error in a 200", FormJSON, `{"error":{"message":"no resp_@1"},"message":"resp_1","id":"resp_@1"}`},
	{"error of a failed response", FormJSON, `{"response":{"error":{"code":"x","message":"conv_@1"}}}`},
	{"flat error", FormError, `{"object":"error","message":"Response with id \u0027resp_@1\u0027 not found.","code":404}`},
	{"detail", FormError, `{"detail":"conv_@1 and resp_@2, resp_@3."}`},
	{"detail in a 200", FormJSON, `{"detail":"conv_1"}`},
	{"bare error", FormError, `{"error":"no conv_@1"}`},
	{"details as a list", FormError, `{"detail":[{"msg":"resp_1","input":"resp_2"}]}`},
	{"words", FormError, `{"message":"xresp_1 _resp_1 -resp_1 resp_ resp_. resp__1 (resp_@1) \nresp_@1 'resp' resp-1 resp_@1.resp_2 Resp_1 \"resp_@\u0041\" é` + `resp_@1"}`},
	{"tagged words", FormError, `{"message":"resp_fra.0a1b2c3d..1 resp_@1 conv_fra.0a1b2c3d.0123456789abcdef.1."}`},
	{"long word", FormError, `{"message":"resp_@` + strings.Repeat("a", 200) + ` resp_@1 resp_` + strings.Repeat("a", 63) + `.0a1b2c3d.0123456789abcdef.1resp_1"}`},
	{"other members of an error", FormError, `{"error":{"param":"resp_1","metadata":{"message":"resp_2"},"innererror":{"message":"resp_3"}}}`},

	// not for us
	{"no form", FormNone, `{"id":"resp_1"}`},

	// SSE
	{"created", FormSSE, "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_@1\"}}\n\n"},
	{"no space", FormSSE, "event:response.created\ndata:{\"response\":{\"id\":\"resp_@1\"}}\n\n"},
	{"CRLF", FormSSE, "event: response.created\r\ndata: {\"response\":{\"id\":\"resp_@1\"}}\r\n\r\ndata: {\"response\":{\"id\":\"resp_@2\"}}\r\n\r\n"},
	{"CR", FormSSE, "event: response.created\rdata: {\"response\":{\"id\":\"resp_@1\"}}\r\rdata: {\"response\":{\"id\":\"resp_@2\"}}\r\r"},
	{"many lines", FormSSE, "data: {\"response\":\ndata: {\"id\"\ndata:\ndata: :\n: ping\ndata: \"resp_@1\"}}\n\ndata: {\"id\":\"resp_@2\"}\n\n"},
	{"a string broken by a line end", FormSSE, "data: {\"id\":\"resp_1\ndata: resp_2\"}\n\ndata: {\"id\":\"resp_@2\"}\n\n"},
	{"pings", FormSSE, ": ping - 2026\n\n:\n\nevent: ping\ndata: {}\n\ndata: {\"id\":\"resp_@1\"}\n\n: {\"id\":\"resp_1\"}\n\n"},
	{"other fields", FormSSE, "id: resp_1\nretry: 10\ndatax: {\"id\":\"resp_1\"}\ndata\nevent\ndata : {\"id\":\"resp_1\"}\ndata: {\"id\":\"resp_@1\"}\n\n"},
	{"deltas", FormSSE, "event: response.output_text.delta\ndata: {\"id\":\"resp_1\",\"delta\":\"resp_1\",\"item_id\":\"msg_1\"}\n\n" +
		"event: response.completed\ndata: {\"response\":{\"id\":\"resp_@1\"}}\n\ndata: [DONE]\n\n"},
	{"unnamed delta", FormSSE, "data: {\"delta\":\"resp_1\",\"type\":\"response.output_text.delta\"}\n\n"},
	{"item", FormSSE, "event: response.output_item.done\ndata: {\"item\":{\"id\":\"resp_1\"},\"item_id\":\"resp_1\"}\n\n"},
	{"the name goes with its event", FormSSE, "event: a.delta\n\ndata: {\"id\":\"resp_@1\"}\n\nevent: a.delta\nevent: b\ndata: {\"id\":\"resp_@2\"}\n\n"},
	{"error event", FormSSE, "event: error\ndata: {\"type\":\"error\",\"code\":404,\"message\":\"no 'resp_@1'\"}\n\n"},
	{"unnamed error", FormSSE, "data: {\"error\":{\"message\":\"no 'resp_@1'\"}}\n\ndata: {\"message\":\"no 'resp_@1'\"}\n\n"},
	{"message of another event", FormSSE, "event: response.custom\ndata: {\"message\":\"resp_1\"}\n\n"},
	{"inject", FormSSE, "event: response.inject.failed\ndata: {\"response_id\":\"resp_@1\"}\n\n"},
	{"long names", FormSSE, "event: " + strings.Repeat("x", 80) + ".delta\ndata: {\"id\":\"resp_@1\"}\n\n" + strings.Repeat("data", 30) + ": {\"id\":\"resp_1\"}\n\n"},
	{"a name cut to one that carries none", FormSSE, "event: " + strings.Repeat("x", maxName-6) + ".deltas\ndata: {\"id\":\"resp_@1\"}\n\n"},
	{"an empty name", FormSSE, "event:\ndata: {\"message\":\"resp_@1\"}\n\nevent: x\nevent: \ndata: {\"message\":\"resp_@1\"}\n\n"},
	{"broken event, then a good one", FormSSE, "data: {\"id\":{[\"\\\n\ndata: {\"id\":\"resp_@1\"}\n\n"},
	{"a key cut in an escape", FormSSE, "data: {\"\\u00\n\ndata: {\"id\":\"resp_@1\"}\n\n"},
	{"no end", FormSSE, "data: {\"id\":\"resp_@1\"}"},
	{"blank lines", FormSSE, "\n\n\r\n\r\ndata: {\"id\":\"resp_@1\"}\n\n\n\n"},
}

func TestRewriter(t *testing.T) {
	for _, c := range rewriteCases {
		r := NewRewriter(testStamp, c.form)
		got := r.Finish(r.Append(nil, c.in()))
		if !bytes.Equal(got, c.out()) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.out())
		}
		if want := strings.Count(c.want, "@"); r.Tagged() != want {
			t.Errorf("%s: Tagged = %d, want %d", c.name, r.Tagged(), want)
		}
		if again := rewrite(c.form, got); !bytes.Equal(again, got) {
			t.Errorf("%s: a second pass changes it: %q", c.name, again)
		}
	}
}

// The output is the same wherever the input is cut, and no more is held back
// than an undecided id.
func TestRewriterEverySplit(t *testing.T) {
	r := NewRewriter("", FormNone)
	var got []byte
	for _, c := range rewriteCases {
		in, want := c.in(), c.out()
		for at := range in {
			r.Reset(testStamp, c.form)
			got = r.Append(got[:0], in[:at])
			if held := at + r.Tagged()*len(testStamp) - len(got); held < 0 || held > len(r.scanner.hold.raw) {
				t.Fatalf("%s: %d bytes held back at %d", c.name, held, at)
			} else if (held > 0) != r.scanner.holding() {
				t.Fatalf("%s: %d bytes held back at %d, holding = %v", c.name, held, at, r.scanner.holding())
			}
			if got = r.Finish(r.Append(got, in[at:])); !bytes.Equal(got, want) {
				t.Fatalf("%s: cut at %d:\n got %q\nwant %q", c.name, at, got, want)
			}
		}
		for step := 1; step < 9; step++ {
			r.Reset(testStamp, c.form)
			got = got[:0]
			for i := 0; i < len(in); i += step {
				got = r.Append(got, in[i:min(i+step, len(in))])
			}
			if got = r.Finish(got); !bytes.Equal(got, want) {
				t.Fatalf("%s: in pieces of %d:\n got %q\nwant %q", c.name, step, got, want)
			}
		}
	}
}

// What was read so far goes out at once: an event must not wait for the next.
func TestRewriterHoldsBackOnlyIDs(t *testing.T) {
	r := NewRewriter(testStamp, FormSSE)
	for _, in := range []string{"event: response.output_text.delta\n", "data: {\"delta\":\"re", "sp_", "1\"}\n", "\n", ": pi", "ng\n\n",
		"data: {\"id\":\"x", "\"}", "\n\n"} {
		if got := r.Append(nil, []byte(in)); string(got) != in {
			t.Errorf("%q came out as %q", in, got)
		}
	}
	if got := r.Append(nil, []byte(`data: {"id":"resp_1`)); string(got) != `data: {"id":"` {
		t.Errorf("an undecided id: %q", got)
	}
	if got := r.Finish(nil); string(got) != "resp_1" || r.Tagged() != 0 {
		t.Errorf("an id cut off: %q", got)
	}
}

func TestAtBoundary(t *testing.T) {
	for _, c := range []struct{ name, at string }{
		// "|" where the stream stands between two events
		{"LF", "|event: a\ndata: {\"id\":\"resp_1\"}\n\n|: ping\n\n|data:x\n\n|\n|"},
		{"CRLF", "|event: a\r\ndata: {}\r\n\r\n|data: {}\r\n\r\n|"},
		{"CR: never sure", "|data: {}\r\rdata: {}\r\r"},
	} {
		in := []byte(strings.ReplaceAll(c.at, "|", ""))
		r := NewRewriter(testStamp, FormSSE)
		var got []byte
		for i := 0; ; i++ {
			if r.AtBoundary() {
				got = append(got, '|')
			}
			if i == len(in) {
				break
			}
			got = append(got, in[i])
			r.Append(nil, in[i:i+1])
		}
		if string(got) != c.at {
			t.Errorf("%s: %q, want %q", c.name, got, c.at)
		}
	}
	for _, f := range []Form{FormNone, FormJSON, FormError} {
		if NewRewriter(testStamp, f).AtBoundary() {
			t.Errorf("form %d stands between events", f)
		}
	}
}

func TestEventCarriesIDs(t *testing.T) {
	for _, name := range []string{"", "error", "response.created", "response.queued", "response.in_progress", "response.completed",
		"response.incomplete", "response.failed", "response.inject.created", "response.output_item.added", "response.new_kind"} {
		if !EventCarriesIDs(name) {
			t.Errorf("%q goes past the rewriter", name)
		}
	}
	for _, name := range []string{"response.output_text.delta", "response.function_call_arguments.delta", "response.reasoning_text.delta",
		"response.refusal.delta", "response.mcp_call_arguments.delta"} {
		if EventCarriesIDs(name) {
			t.Errorf("%q needs the rewriter", name)
		}
	}
}

// Whoever takes only 64 KiB of a line breaks on an image in an event.
func TestMegabyteDataLine(t *testing.T) {
	big := strings.Repeat(`QUJD\n\"`, 2<<20/8)
	c := rewriteCase{form: FormSSE, want: "event: response.completed\ndata: {\"response\":{\"output\":[{\"id\":\"ig_1\",\"result\":\"" + big +
		"\"}],\"instructions\":\"" + big + "\",\"id\":\"resp_@1\"}}\n\ndata: {\"id\":\"resp_@2\"}\n\n"}
	in := c.in()
	r := NewRewriter(testStamp, c.form)
	var got []byte
	for i := 0; i < len(in); i += 4093 {
		got = r.Append(got, in[i:min(i+4093, len(in))])
	}
	if !bytes.Equal(r.Finish(got), c.out()) {
		t.Error("a line of 4 MiB is damaged")
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	in := deltaStream(50, true)
	in = in[bytes.Index(in, []byte("\n\n"))+2:]
	in = in[:bytes.LastIndex(in, []byte("event: "))]
	r := NewRewriter(testStamp, FormSSE)
	dst := make([]byte, 0, 2*len(in))
	if n := testing.AllocsPerRun(50, func() { r.Append(dst, in) }); n != 0 {
		t.Errorf("%v allocations for 50 deltas", n)
	}
}

func TestFormOf(t *testing.T) {
	for _, c := range []struct {
		status     int
		ctype, enc string
		want       Form
	}{
		{200, "application/json", "", FormJSON},
		{201, "Application/JSON; charset=utf-8", "identity", FormJSON},
		{404, "application/json", "", FormError},
		{500, "application/problem+json", "", FormError},
		{200, "text/event-stream", "", FormSSE},
		{200, "text/event-stream; charset=utf-8", "Identity", FormSSE},
		{200, "application/json", "gzip", FormNone},
		{200, "text/event-stream", "br", FormNone},
		{200, "text/html", "", FormNone},
		{500, "text/plain", "", FormNone},
		{204, "", "", FormNone},
	} {
		if got := FormOf(c.status, c.ctype, c.enc); got != c.want {
			t.Errorf("FormOf(%d, %q, %q) = %d, want %d", c.status, c.ctype, c.enc, got, c.want)
		}
	}
}
