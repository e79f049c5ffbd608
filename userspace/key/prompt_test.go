package key

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// relation is what must hold between the keys of two bodies.
type relation int

const (
	same   relation = iota // the same keys
	apart                  // not one key in common
	grown                  // the first's keys are a prefix of the second's, which has more
	shared                 // the same first keys, then others
)

func compareKeys(a, b []Key) relation {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	switch {
	case n == len(a) && n == len(b):
		return same
	case n == len(a):
		return grown
	case n == 0:
		return apart
	}
	return shared
}

func (r relation) String() string { return [...]string{"same", "apart", "grown", "shared"}[r] }

func TestWhatSeparatesKeys(t *testing.T) {
	text := quoted(fill(prose, 1000))
	user := `{"role":"user","content":` + text + `}`
	big := `"` + strings.Repeat("z", 17000) + `"`
	with := func(rest string) string { return `{"model":"m",` + rest + `"messages":[` + user + `]}` }
	parts := func(parts string) string {
		return `{"model":"m","messages":[{"role":"user","content":[` + parts + `]},` + user + `]}`
	}
	tail := func(messages string) string {
		return `{"model":"m","messages":[` + user + `,` + messages + `,` + user + `]}`
	}
	input := func(items string) string { return `{"model":"m","input":[` + user + `,` + items + `,` + user + `]}` }
	calls := func(message string) string { return tail(`{"role":"assistant",` + message + `}`) }
	for _, c := range []struct {
		name string
		api  API
		a, b string
		want relation
	}{
		{"field order", APIChat, with(`"temperature":1,`), `{"messages":[{"content":` + text + `,"role":"user"}],"model":"m"}`, same},
		{"generation parameters", APIChat, with(""), with(`"temperature":0,"top_p":0.1,"seed":7,"stop":["x"],"stream":true,"max_tokens":9,"user":"u","metadata":{},"logit_bias":{},"response_format":{"type":"json_object"},"priority":1,"store":true,"prompt_cache_key":"k","session_id":"s","request_id":"r","kv_transfer_params":{},`), same},
		{"white space", APIChat, with(""), strings.NewReplacer(`{"`, "{ \"", `":`, "\" :\n", `,"`, ",\t\"").Replace(with("")), same},
		{"model", APIChat, with(""), strings.Replace(with(""), `"m"`, `"n"`, 1), apart},
		{"model and salt are framed", APIChat, strings.Replace(with(`"cache_salt":"b",`), `"m"`, `"a"`, 1), strings.Replace(with(""), `"m"`, `"ab"`, 1), apart},
		{"cache_salt", APIChat, with(""), with(`"cache_salt":"s",`), apart},
		{"cache_salt empty", APIChat, with(""), with(`"cache_salt":"",`), same},
		{"cache_salt of Messages", APIMessages, with(""), with(`"cache_salt":"s",`), apart},
		{"chat_template", APIChat, with(""), with(`"chat_template":"x",`), apart},
		{"chat_template_kwargs", APIChat, with(`"chat_template_kwargs":{"enable_thinking":true},`), with(`"chat_template_kwargs":{"enable_thinking":false},`), apart},
		{"documents", APIChat, with(""), with(`"documents":[{}],`), apart},
		{"tools", APIChat, with(""), with(`"tools":[{}],`), apart},
		{"tools and functions", APIChat, with(`"functions":[{}],`), with(`"tools":[{}],`), apart},
		{"tool_choice auto is the default", APIChat, with(""), with(`"tool_choice":"auto",`), same},
		{"tool_choice none", APIChat, with(""), with(`"tool_choice":"none",`), apart},
		{"reasoning_effort", APIChat, with(`"reasoning_effort":"low",`), with(`"reasoning_effort":"high",`), apart},
		{"reasoning effort of Responses", APIResponses, `{"reasoning":{"effort":"low"},"input":` + text + `}`, `{"reasoning":{"effort":"high"},"input":` + text + `}`, apart},
		{"reasoning summary of Responses", APIResponses, `{"reasoning":{"effort":"low"},"input":` + text + `}`, `{"reasoning":{"summary":"auto","effort":"low"},"input":` + text + `}`, same},
		{"the end of the prompt", APIChat, with(""), with(`"add_generation_prompt":false,"continue_final_message":true,`), same},
		{"add_special_tokens default", APIChat, with(""), with(`"add_special_tokens":false,`), same},
		{"add_special_tokens", APIChat, with(""), with(`"add_special_tokens":true,`), apart},
		{"mm_processor_kwargs", APIChat, with(""), with(`"mm_processor_kwargs":{"n":1},`), apart},
		{"null is none", APIChat, with(""), with(`"tools":null,"chat_template":null,"reasoning_effort":null,"cache_salt":null,`), same},

		{"tool key order", APIChat, with(`"tools":[{"a":1,"b":{"c":[1,{"e":2,"d":3}]}}],`), with(`"tools":[{"b":{"c":[ 1, {"d":3,"e":2}]},"a":1}],`), same},
		{"tool order", APIChat, with(`"tools":[1,2],`), with(`"tools":[2,1],`), apart},
		{"large value by its bytes", APIChat, with(`"tools":[` + big + `],`), with(`"tools":[ ` + big + `],`), apart},
		{"large value again", APIChat, with(`"tools":[` + big + `],`), with(` "tools" : [` + big + `] ,`), same},
		{"escapes in JSON", APIChat, with(`"tools":["\u00e9\u0022"],`), with(`"tools":["é\""],`), same},
		{"strings in JSON do not run together", APIChat, with(`"tools":["a","b"],`), with(`"tools":["a\",\"b"],`), apart},
		{"last of equal names, nested", APIChat, with(`"tools":[{"a":1,"a":2}],`), with(`"tools":[{"a":2}],`), same},

		{"escaped text", APIChat, parts(`"\u00e9\u4f60\ud83d\ude00\/"`), parts(`"é你😀/"`), same},
		{"string is one text part", APIChat, with(""), `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":` + text + `}]}]}`, same},
		{"two texts are not one", APIChat, parts(`"ab","c"`), parts(`"a","bc"`), apart},
		{"role", APIChat, with(""), strings.Replace(with(""), "user", "system", 1), apart},
		{"role and text are framed", APIChat, parts(`"x"`), `{"model":"m","messages":[{"role":"userx","content":[]},` + user + `]}`, apart},
		{"two messages are not one", APIChat, tail(`{"role":"a","content":["x","y"]}`), tail(`{"role":"a","content":"x"},{"role":"a","content":"y"}`), shared},

		{"tool call name", APIChat, calls(`"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]`), calls(`"tool_calls":[{"function":{"name":"g","arguments":"{}"}}]`), shared},
		{"tool call arguments", APIChat, calls(`"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]`), calls(`"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]`), shared},
		{"tool call argument order", APIChat, calls(`"tool_calls":[{"function":{"name":"f","arguments":"{\"b\":2,\"a\":1}"}}]`), calls(`"tool_calls":[{"function":{"name":"f","arguments":"{ \"a\": 1, \"b\": 2 }"}}]`), same},
		{"tool call arguments as an object", APIChat, calls(`"tool_calls":[{"function":{"name":"f","arguments":"{\"b\":2,\"a\":1}"}}]`), calls(`"tool_calls":[{"function":{"name":"f","arguments":{"a":1,"b":2}}}]`), same},
		{"tool call ids", APIChat, calls(`"tool_calls":[{"id":"1","function":{"name":"f"}}]`), calls(`"tool_calls":[{"id":"2","function":{"name":"f"}}]`), same},
		{"reasoning", APIChat, calls(`"content":"x"`), calls(`"content":"x","reasoning":"hm","reasoning_content":"hm"`), same},
		{"thinking part", APIChat, parts(`"x"`), parts(`{"type":"thinking","thinking":"hm"},"x"`), same},
		{"name", APIChat, tail(`{"role":"user","content":"x"}`), tail(`{"role":"user","name":"bob","content":"x"}`), shared},

		{"image", APIChat, parts(`{"type":"image_url","image_url":{"url":"a"}}`), parts(`{"type":"image_url","image_url":{"url":"b"}}`), apart},
		{"image forms", APIChat, parts(`{"type":"image_url","image_url":{"url":"a","detail":"low"}}`), parts(`{"image_url":"a"}`), same},
		{"image with uuid, signed anew", APIChat, parts(`{"type":"image_url","image_url":{"url":"a?sig=1"},"uuid":"u"}`), parts(`{"type":"image_url","image_url":{"url":"a?sig=2"},"uuid":"u"}`), same},
		{"cached image", APIChat, parts(`{"type":"image_url","image_url":{"url":"a?sig=1"},"uuid":"u"}`), parts(`{"type":"image_url","image_url":null,"uuid":"u"}`), same},
		{"uuid is not a url", APIChat, parts(`{"type":"image_url","image_url":"u"}`), parts(`{"type":"image_url","image_url":"x","uuid":"u"}`), apart},
		{"video and audio", APIChat, parts(`{"type":"video_url","video_url":{"url":"a"}}`), parts(`{"type":"audio_url","audio_url":{"url":"a"}}`), apart},

		{"billing header", APIMessages, `{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1"},{"type":"text","text":` + text + `}],"messages":[` + user + `]}`, `{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=2"},{"type":"text","text":` + text + `}],"messages":[` + user + `]}`, same},
		{"Messages thinking", APIMessages, parts(`{"type":"text","text":"x"}`), parts(`{"type":"thinking","thinking":"a","signature":"b"},{"type":"redacted_thinking","data":"c"},{"type":"text","text":"x"}`), same},
		{"cache_control", APIMessages, with(`"tools":[{"name":"t"}],`), `{"model":"m","tools":[{"name":"t","cache_control":{"type":"ephemeral","ttl":"1h"}}],"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":[{"type":"text","text":` + text + `,"cache_control":{"type":"ephemeral"}}]}]}`, same},
		{"a property named cache_control", APIMessages, with(`"tools":[{"p":{"cache_control":{"type":"string"}}}],`), with(`"tools":[{"p":{}}],`), apart},
		{"an argument named cache_control", APIMessages, tail(`{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{"cache_control":{"type":"ephemeral"}}}]}`), tail(`{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}`), shared},
		{"tool result and what follows", APIMessages, tail(`{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`), tail(`{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"a"}]},{"type":"text","text":"b"}]}`), shared},
		{"tool_use_id", APIMessages, tail(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"a"}]}`), tail(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"2","content":"a"}]}`), same},

		{"item type is message", APIResponses, input(`{"role":"user","content":"x"}`), input(`{"type":"message","id":"msg_1","role":"user","content":[{"type":"input_text","text":"x"}]}`), same},
		{"reasoning item", APIResponses, input(`{"role":"user","content":"x"}`), input(`{"type":"reasoning","id":"rs_1","summary":[]},{"role":"user","content":"x"}`), same},
		{"input string", APIResponses, `{"input":` + text + `}`, `{"input":[` + user + `]}`, same},
		{"instructions", APIResponses, `{"input":` + text + `}`, `{"instructions":"x","input":` + text + `}`, apart},
		{"web search call", APIResponses, input(`{"type":"web_search_call","action":{"query":"a"}}`), input(`{"type":"web_search_call","action":{"query":"b"}}`), shared},

		{"string and list of one", APICompletions, `{"prompt":` + text + `}`, `{"prompt":[` + text + `]}`, same},
		{"suffix", APICompletions, `{"prompt":` + text + `}`, `{"prompt":` + text + `,"suffix":"x"}`, apart},
		{"longer prompt", APICompletions, `{"prompt":` + quoted(fill(prose, 1000)) + `}`, `{"prompt":` + quoted(fill(prose, 2000)) + `}`, grown},
		{"token arrays of equal length", APICompletions, `{"prompt":[` + strings.Repeat("1,", 99) + `1]}`, `{"prompt":[` + strings.Repeat("2,", 99) + `1]}`, apart},
		{"longer token array", APICompletions, `{"prompt":[` + strings.Repeat("1,", 99) + `1]}`, `{"prompt":[[` + strings.Repeat("1,", 299) + `1]]}`, grown},
		{"tokens are not text", APICompletions, `{"prompt":[` + strings.Repeat("16843009,", 99) + `16843009]}`, `{"prompt":"` + strings.Repeat(`\u0001`, 400) + `"}`, apart},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := NewHasher(testSecret, Options{TokenArrays: true})
			var a, b Prompt
			h.Read(c.api, []byte(c.a), &a)
			h.Read(c.api, []byte(c.b), &b)
			if a.Reason != ReasonNone || b.Reason != ReasonNone {
				t.Fatalf("no keys: %v and %v\n%.300s\n%.300s", a.Reason, b.Reason, c.a, c.b)
			}
			if got := compareKeys(a.Keys, b.Keys); got != c.want {
				t.Errorf("keys are %v, want %v\n%.300s\n%.300s", got, c.want, c.a, c.b)
			}
		})
	}
}

// TestEachTurnExtendsTheLast is field report C2: the keys of turn n are the
// first keys of turn n+1, in every API.
func TestEachTurnExtendsTheLast(t *testing.T) {
	turn := map[API]func(i int) string{
		APIChat: func(i int) string {
			return fmt.Sprintf(`{"role":"user","content":"Question %d"},{"role":"assistant","content":null,"tool_calls":[{"id":"%d","function":{"name":"f","arguments":"{\"n\":%d}"}}]},{"role":"tool","content":%s}`, i, i, i, quoted(fill(code, 700+i)))
		},
		APIMessages: func(i int) string {
			return fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":"Question %d"}]},{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{"n":%d}}]},{"role":"user","content":[{"type":"tool_result","content":%s}]}`, i, i, quoted(fill(code, 700+i)))
		},
		APIResponses: func(i int) string {
			return fmt.Sprintf(`{"role":"user","content":"Question %d"},{"type":"function_call","name":"f","arguments":"{\"n\":%d}"},{"type":"function_call_output","output":%s}`, i, i, quoted(fill(code, 700+i)))
		},
	}
	h := NewHasher(testSecret, Options{})
	for api, one := range turn {
		member := map[API]string{APIChat: "messages", APIMessages: "messages", APIResponses: "input"}[api]
		var turns []string
		var last []Key
		for i := range 12 {
			turns = append(turns, one(i))
			var p Prompt
			h.Read(api, []byte(`{"model":"m","tools":[{"name":"f"}],"`+member+`":[`+strings.Join(turns, ",")+`]}`), &p)
			if len(p.Keys) <= len(last) || !slices.Equal(p.Keys[:len(last)], last) {
				t.Errorf("%v turn %d: %d keys do not extend the last turn's %d (%v)", api, i, len(p.Keys), len(last), p.Reason)
			}
			last = p.Keys
		}
	}
}

func TestImageCountsAsOneDigest(t *testing.T) {
	h := NewHasher(testSecret, Options{})
	var small, large Prompt
	body := `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:%s"}},{"type":"text","text":%s}]}]}`
	h.Read(APIChat, fmt.Appendf(nil, body, "A", quoted(fill(prose, 600))), &small)
	h.Read(APIChat, fmt.Appendf(nil, body, strings.Repeat("A", 1<<20), quoted(fill(prose, 600))), &large)
	if small.Bytes != large.Bytes || len(small.Keys) == 0 || small.Keys[0] == large.Keys[0] {
		t.Errorf("%d and %d bytes, keys %v and %v", small.Bytes, large.Bytes, small.Keys, large.Keys)
	}
}

func TestReachOfSparseKeys(t *testing.T) {
	h := NewHasher(testSecret, Options{})
	text := []byte(fill(prose, 1<<20+1<<18))
	read := func() (p Prompt) {
		h.Read(APICompletions, append(append([]byte(`{"prompt":"`), text...), `"}`...), &p)
		return p
	}
	whole := read()
	if len(whole.Keys) != MaxKeys || whole.Bytes != len(text)+2 {
		t.Fatalf("%d keys, %d bytes", len(whole.Keys), whole.Bytes)
	}
	for _, n := range []int{1, DenseKeys, DenseKeys + 1, DenseKeys + SparseRun, MaxKeys} {
		// The last byte that key n covers: the key sees it, the one before not.
		at := Blocks(n)*BlockBytes - 1 - len("\xFFp")
		text[at] ^= 1
		edited := read()
		text[at] ^= 1
		if edited.Keys[n-1] == whole.Keys[n-1] || !slices.Equal(edited.Keys[:n-1], whole.Keys[:n-1]) {
			t.Errorf("key %d does not end at byte %d", n, at)
		}
	}
	text[Blocks(MaxKeys)*BlockBytes] ^= 1
	if beyond := read(); !slices.Equal(beyond.Keys, whole.Keys) {
		t.Error("keys depend on bytes beyond the reach")
	}
}

func TestBlocks(t *testing.T) {
	for n, want := range map[int]int{-1: 0, 0: 0, 1: 1, 448: 448, 449: 450, 456: 464, 457: 468, 464: 496, 512: 4528} {
		if got := Blocks(n); got != want {
			t.Errorf("Blocks(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestSecretSeparatesKeys(t *testing.T) {
	body := []byte(chatBody("", quoted(fill(prose, 600))))
	var a, b Prompt
	NewHasher(testSecret, Options{}).Read(APIChat, body, &a)
	NewHasher([32]byte{1}, Options{}).Read(APIChat, body, &b)
	if compareKeys(a.Keys, b.Keys) != apart {
		t.Error("keys do not depend on the secret")
	}
}

func TestParsePath(t *testing.T) {
	for path, want := range map[string]API{
		"/v1/chat/completions":      APIChat,
		"/v1/chat/completions/":     APIChat,
		"/v1/completions":           APICompletions,
		"/v1/messages":              APIMessages,
		"/v1/responses/":            APIResponses,
		"/v1/messages/count_tokens": APIUnknown,
		"/v1/responses/resp_1":      APIUnknown,
		"/v1/responses/compact":     APIUnknown,
		"/V1/messages":              APIUnknown,
		"v1/messages":               APIUnknown,
		"/v1/embeddings":            APIUnknown,
		"":                          APIUnknown,
		"/":                         APIUnknown,
	} {
		if got := ParsePath(path); got != want {
			t.Errorf("ParsePath(%q) = %v, want %v", path, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	seen := map[string]bool{}
	for r := ReasonNone; r <= ReasonContinued; r++ {
		s := r.String()
		if s == "unknown" || seen[s] || strings.ToLower(s) != s {
			t.Errorf("reason %d has the label %q", r, s)
		}
		seen[s] = true
	}
	for a := APIChat; a <= APIResponses; a++ {
		if a.String() == "unknown" || seen[a.String()] {
			t.Errorf("API %d has the label %q", a, a)
		}
		seen[a.String()] = true
	}
}
