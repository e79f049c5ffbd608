package key

import (
	"runtime"
	"strings"
	"sync"
	"testing"
)

// TestTruncatedBodyIsInvalid cuts every sample at every byte.
func TestTruncatedBodyIsInvalid(t *testing.T) {
	h := NewHasher(testSecret, Options{TokenArrays: true})
	var p Prompt
	for _, s := range samples() {
		body := []byte(strings.TrimSpace(s.body))
		if len(body) > 4096 || s.api == APIUnknown {
			continue
		}
		for n := range body {
			h.Read(s.api, body[:n:n], &p)
			if p.Reason != ReasonInvalid {
				t.Fatalf("%s cut to %d bytes: %v", s.name, n, p.Reason)
			}
		}
	}
}

func TestUnreadableBodies(t *testing.T) {
	text := quoted(fill(prose, 600))
	in := func(content string) string {
		return `{"model":"m","messages":[{"role":"user","content":` + content + `}]}`
	}
	deep := strings.Repeat("[", 10000) + strings.Repeat("]", 10000)
	h := NewHasher(testSecret, Options{})
	for name, body := range map[string]string{
		"empty":                         "",
		"space":                         " ",
		"not an object":                 `["messages"]`,
		"null":                          `null`,
		"two objects":                   in(text) + in(text),
		"rubbish after":                 in(text) + "x",
		"rubbish before":                "\xEF\xBB\xBF" + in(text),
		"comma after the last member":   `{"messages":[],}`,
		"comma after the last message":  `{"messages":[{"role":"user","content":` + text + `},]}`,
		"comma twice":                   `{"messages":[{"role":"user",,"content":` + text + `}]}`,
		"no colon":                      `{"messages" [{"role":"user","content":` + text + `}]}`,
		"wrong bracket":                 `{"messages":[{"role":"user","content":` + text + `]}}`,
		"wrong bracket, not read":       `{"x":[{]},"messages":[{"role":"user","content":` + text + `}]}`,
		"10,000 levels":                 `{"x":` + deep + `,"messages":[{"role":"user","content":` + text + `}]}`,
		"10,000 levels in tools":        `{"tools":` + deep + `,"messages":[{"role":"user","content":` + text + `}]}`,
		"10,000 levels never closed":    `{"messages":` + strings.Repeat(`[{"a":`, 5000),
		"10,000 levels only":            strings.Repeat("{", 10000),
		"invalid UTF-8 in text":         in("\"" + fill(prose, 600) + "\xC3\x28\""),
		"surrogate as UTF-8":            in("\"" + fill(prose, 600) + "\xED\xA0\x80\""),
		"overlong UTF-8":                in("\"" + fill(prose, 600) + "\xC0\xAF\""),
		"invalid UTF-8, not read":       `{"x":"` + "\xFF" + `","messages":[{"role":"user","content":` + text + `}]}`,
		"control character in text":     in("\"" + fill(prose, 600) + "\n\""),
		"control character in an image": in("[{\"type\":\"image_url\",\"image_url\":\"\x00\"}," + text + "]"),
		"unknown escape":                in(`"` + fill(prose, 600) + `\x41"`),
		"short \\u escape":              in(`"` + fill(prose, 600) + `\u12"`),
		"wrong \\u escape":              in(`"` + fill(prose, 600) + `\u12G4"`),
		"bad number in tools":           `{"tools":[01],"messages":[{"role":"user","content":` + text + `}]}`,
		"bad word in tools":             `{"tools":[nul],"messages":[{"role":"user","content":` + text + `}]}`,
		"bad number at the top":         `{"temperature":1.,"messages":[{"role":"user","content":` + text + `}]}`,
		"NaN":                           `{"temperature":NaN,"messages":[{"role":"user","content":` + text + `}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var p Prompt
			h.Read(APIChat, []byte(body), &p)
			if p.Reason != ReasonInvalid || len(p.Keys) != 0 {
				t.Errorf("%v with %d keys", p.Reason, len(p.Keys))
			}
		})
	}
}

func TestHugeNumbers(t *testing.T) {
	digits := strings.Repeat("9", 100000)
	body := `{"max_tokens":` + digits + `,"seed":-` + digits + `.` + digits + `e+` + digits + `,"tools":[` + digits[:9000] + `],"messages":[{"role":"user","content":` + quoted(fill(prose, 600)) + `}]}`
	var p Prompt
	NewHasher(testSecret, Options{}).Read(APIChat, []byte(body), &p)
	if p.Reason != ReasonNone || p.MaxTokens != 1<<31-1 {
		t.Errorf("%v, limit %d", p.Reason, p.MaxTokens)
	}
}

// TestWrongTypesEverywhere puts each kind of value in place of each value of a
// body: nothing crashes, and what is read agrees with the reference.
func TestWrongTypesEverywhere(t *testing.T) {
	o := Options{TokenArrays: true}
	h := NewHasher(testSecret, o)
	values := []string{"null", "true", "7", "-1.5", `""`, `"x"`, "[]", "{}", "[[]]", `[null]`, `{"id":null}`}
	var p Prompt
	for i, s := range samples() {
		if len(s.body) > 2048 || i%slowdown != 0 {
			continue
		}
		for _, at := range valueStarts(s.body) {
			end := skipValue([]byte(s.body), at, 0, nil)
			if end == bad {
				continue // "too deep"
			}
			for _, v := range values {
				agree(t, h, o, s.api, []byte(s.body[:at]+v+s.body[end:]), &p)
			}
		}
	}
}

// valueStarts returns where the values of a JSON text start, its own apart.
func valueStarts(s string) (starts []int) {
	inString := false
	for i := 0; i < len(s); i++ {
		switch {
		case inString && s[i] == '\\':
			i++
		case s[i] == '"':
			inString = !inString
		case !inString && (s[i] == ':' || s[i] == '['):
			if at := skipSpace([]byte(s), i+1); s[at] != ']' {
				starts = append(starts, at)
			}
		}
	}
	return starts
}

// TestMembersWithoutKeys: what routing and limits need is found whatever the
// prompt is.
func TestMembersWithoutKeys(t *testing.T) {
	h := NewHasher(testSecret, Options{})
	var p Prompt
	for _, c := range []struct {
		name   string
		api    API
		body   string
		reason Reason
	}{
		{"embeddings", APIUnknown, `{"input":["a"],"model":"m\u00e9","stream":true,"max_tokens":5}`, ReasonPath},
		{"rerank", APIUnknown, `{"query":"q","documents":[],"max_tokens":5,"stream":true,"model":"mé"}`, ReasonPath},
		{"cut off", APIUnknown, `{"model":"mé","stream":true,"max_tokens":5,"input":"a`, ReasonPath},
		{"cut off chat", APIChat, `{"model":"mé","stream":true,"max_tokens":5,"messages":[{`, ReasonInvalid},
		{"no prompt", APICompletions, `{"model":"mé","stream":true,"max_tokens":5}`, ReasonNoPrompt},
		{"unknown part", APIChat, `{"messages":[{"role":"user","content":[{"type":"x"}]}],"model":"mé","stream":true,"max_tokens":5}`, ReasonPart},
		{"tokens", APICompletions, `{"prompt":[1],"model":"mé","stream":true,"max_tokens":5}`, ReasonTokens},
		{"continued", APIResponses, `{"input":"a","previous_response_id":"resp_1","model":"mé","stream":true,"max_output_tokens":5}`, ReasonContinued},
	} {
		h.Read(c.api, []byte(c.body), &p)
		if p.Model != "mé" || !p.Stream || p.MaxTokens != 5 || p.Reason != c.reason {
			t.Errorf("%s: model %q, stream %v, limit %d, %v", c.name, p.Model, p.Stream, p.MaxTokens, p.Reason)
		}
	}
	h.Read(APIUnknown, []byte("{\"model\":\"m\xFF\"}"), &p)
	if p.Model != "" {
		t.Errorf("model %q is not UTF-8", p.Model)
	}
}

// TestDisabledFindsWhatRoutingNeeds: with affinity off there are no keys, and
// model, stream, limit and stored ids are there all the same, also where the
// prompt would be refused.
func TestDisabledFindsWhatRoutingNeeds(t *testing.T) {
	off := NewHasher([32]byte{}, Options{Disabled: true})
	for _, c := range []struct {
		name   string
		api    API
		body   string
		reason Reason
	}{
		{"chat", APIChat, `{"messages":[{"role":"user","content":"` + fill(prose, 4096) + `"}],"model":"m","stream":true,"max_tokens":5}`, ReasonDisabled},
		{"unknown part", APIChat, `{"messages":[{"role":"user","content":[{"type":"x"}]}],"model":"m","stream":true,"max_tokens":5}`, ReasonDisabled},
		{"cut off", APIChat, `{"model":"m","stream":true,"max_tokens":5,"messages":[{`, ReasonDisabled},
		{"embeddings", APIUnknown, `{"input":["a"],"model":"m","stream":true,"max_tokens":5}`, ReasonPath},
		{"continued", APIResponses, `{"input":"a","model":"m","stream":true,"max_output_tokens":5,"previous_response_id":"resp_1"}`, ReasonDisabled},
	} {
		p := Prompt{Keys: []Key{1, 2}}
		off.Read(c.api, []byte(c.body), &p)
		if len(p.Keys) != 0 || p.Bytes != 0 || p.Reason != c.reason || p.Model != "m" || !p.Stream || p.MaxTokens != 5 {
			t.Errorf("%s: %+v", c.name, p)
		}
		if got := p.PreviousResponseID != (Span{}); got != (c.name == "continued") {
			t.Errorf("%s: previous_response_id found: %t", c.name, got)
		}
	}
}

func TestStoredIDs(t *testing.T) {
	h := NewHasher(testSecret, Options{})
	for _, c := range []struct {
		api                             API
		body                            string
		previous, conversation, request string
	}{
		{APIResponses, `{"previous_response_id":"resp_a\u002e1","request_id":"resp_r"}`, `"resp_a\u002e1"`, "", `"resp_r"`},
		{APIResponses, `{"previous_response_id":"a","previous_response_id": "b"}`, `"b"`, "", ""},
		{APIResponses, `{"conversation":"conv_1","previous_response_id":null}`, "", `"conv_1"`, ""},
		{APIResponses, `{"conversation": { "x": {"id":"no"}, "id" : "conv_1" } }`, "", `"conv_1"`, ""},
		{APIResponses, `{"metadata":{"previous_response_id":"a","conversation":"b","request_id":"c"}}`, "", "", ""},
		{APIUnknown, `{"previous_response_id":"resp_1"}`, `"resp_1"`, "", ""},
		{APIChat, `{"previous_response_id":"resp_1","conversation":"c","request_id":"r"}`, "", "", ""},
	} {
		var p Prompt
		h.Read(c.api, []byte(c.body), &p)
		at := func(s Span) string { return c.body[s.Start:s.End] }
		if at(p.PreviousResponseID) != c.previous || at(p.Conversation) != c.conversation || at(p.RequestID) != c.request {
			t.Errorf("%s: %q, %q, %q", c.body, at(p.PreviousResponseID), at(p.Conversation), at(p.RequestID))
		}
	}
}

// TestLargeBodyNeedsLittleMemory reads 64 MB bodies of several kinds (4 MB under
// the race detector).
func TestLargeBodyNeedsLittleMemory(t *testing.T) {
	const size = 64 << 20 / slowdown
	h := NewHasher(testSecret, Options{TokenArrays: true})
	for name, c := range map[string]struct {
		api    API
		body   string
		reason Reason
	}{
		"text":     {APIChat, chatBody("", `"`+fill(prose, size)+`"`), ReasonNone},
		"escapes":  {APIChat, chatBody("", `"`+fill(`\n\"\u00e9`, size/10*10)+`"`), ReasonNone},
		"brackets": {APIChat, chatBody(`"x":`+strings.Repeat("[", size)+`,`, `"x"`), ReasonInvalid},
		"lists":    {APIChat, chatBody(`"x":[`+strings.Repeat("[[[[]]]],", size/9)+`1],`, quoted(fill(prose, 600))), ReasonNone},
		"tokens":   {APICompletions, `{"prompt":[` + strings.Repeat("1,", size/2) + `1]}`, ReasonNone},
		"name":     {APIChat, `{"` + fill("x", size) + `":1,"messages":[]}`, ReasonNoPrompt},
	} {
		body := []byte(c.body)
		var before, after runtime.MemStats
		var p Prompt
		runtime.ReadMemStats(&before)
		h.Read(c.api, body, &p)
		runtime.ReadMemStats(&after)
		if p.Reason != c.reason {
			t.Errorf("%s: %v", name, p.Reason)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
			t.Errorf("%s: allocated %d bytes", name, used)
		}
	}
}

// TestAllocationsDoNotGrowWithMessages allows for a pool that is emptied now
// and then; one allocation per message would be 600.
func TestAllocationsDoNotGrowWithMessages(t *testing.T) {
	h := NewHasher(testSecret, Options{})
	body := []byte(agentBody(300))
	var p Prompt
	h.Read(APIChat, body, &p)
	if n := testing.AllocsPerRun(10, func() { h.Read(APIChat, body, &p) }); n > 20 {
		t.Errorf("%v allocations for %d bytes", n, len(body))
	}
}

func TestPromptDoesNotAliasBody(t *testing.T) {
	h := NewHasher(testSecret, Options{})
	body := []byte(`{"model":"model-a","messages":[]}`)
	var p Prompt
	h.Read(APIChat, body, &p)
	for i := range body {
		body[i] = '#'
	}
	if p.Model != "model-a" {
		t.Errorf("model is %q after the body changed", p.Model)
	}
}

// TestUsageOfAStream: whether it will come in an event of its own.
func TestUsageOfAStream(t *testing.T) {
	h := NewHasher(testSecret, Options{})
	var p Prompt
	for options, want := range map[string]bool{
		`{"include_usage":true}`:                                   true,
		`{"include_usage": true, "continuous_usage_stats": false}`: true,
		`{"include\u005fusage":true}`:                              true,
		`{"include_usage":true,"continuous_usage_stats":true}`:     false,
		`{"include_usage":false}`:                                  false,
		`{"include_usage":"true"}`:                                 false,
		`{"include_usage":true,"include_usage":false}`:             false,
		`{}`:     false,
		`null`:   false,
		`true`:   false,
		`[true]`: false,
	} {
		for _, api := range []API{APIChat, APICompletions, APIUnknown, APIMessages, APIResponses} {
			h.Read(api, []byte(`{"stream":true,"stream_options":`+options+`}`), &p)
			if want := want && api != APIResponses || api == APIMessages; p.Usage != want {
				t.Errorf("%s, %s: %t", api, options, p.Usage)
			}
		}
	}
	for _, cut := range []string{`{"stream_options":{"include_usage":true`, `{"stream_options":{"include_usage"`, `{"stream_options":{"include_usage":true]`} {
		if h.Read(APIChat, []byte(cut), &p); p.Usage {
			t.Errorf("%s: usage", cut)
		}
	}
}

// TestPromptIsOverwritten: nothing of an earlier body stays.
func TestPromptIsOverwritten(t *testing.T) {
	h := NewHasher(testSecret, Options{})
	var p Prompt
	h.Read(APIResponses, []byte(`{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_output_tokens":5,"previous_response_id":"a","conversation":"b","request_id":"c"}`), &p)
	h.Read(APIChat, []byte(chatBody("", quoted(fill(prose, 600)))), &p)
	storage := &p.Keys[0]
	h.Read(APIChat, []byte(`{}`), &p)
	if p.Model != "" || p.Stream || p.Usage || p.MaxTokens != 0 || p.Bytes != 0 || len(p.Keys) != 0 || p.Reason != ReasonNoPrompt ||
		p.PreviousResponseID != (Span{}) || p.Conversation != (Span{}) || p.RequestID != (Span{}) {
		t.Errorf("left over: %+v", p)
	}
	if &p.Keys[:1][0] != storage {
		t.Error("the storage of Keys is gone")
	}
}

func TestHasherIsSafeForConcurrentUse(t *testing.T) {
	h := NewHasher(testSecret, Options{TokenArrays: true})
	all := samples()
	want := make([]Prompt, len(all))
	for i, s := range all {
		h.Read(s.api, []byte(s.body), &want[i])
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			var p Prompt
			for i := range all {
				i = (i + g*7) % len(all)
				h.Read(all[i].api, []byte(all[i].body), &p)
				if p.Reason != want[i].Reason || compareKeys(p.Keys, want[i].Keys) != same {
					t.Errorf("%s differs", all[i].name)
				}
			}
		})
	}
	wg.Wait()
}
