package key

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/minio/highwayhash"
)

// The reference reads a body the slow way: encoding/json into maps of raw
// values (the last of equal names wins there), the canonical prompt built as
// one byte slice, every key hashed from the first byte on.

type refObject map[string]json.RawMessage

type refStop struct{ reason Reason }

func stop(why Reason) { panic(refStop{why}) }

type reference struct {
	secret [32]byte
	api    API
	out    []byte
}

// refRead is Hasher.Read for a body that json.Valid accepts. Spans are left
// zero: only whether they are there counts, see refIDs.
func refRead(secret [32]byte, o Options, api API, body []byte) (p Prompt) {
	var top refObject
	if err := json.Unmarshal(body, &top); err != nil || top == nil || refDepth(body) > 512 || !utf8.Valid(body) {
		p.Reason = ReasonInvalid
		if api == APIUnknown {
			p.Reason = ReasonPath
		}
		return p
	}
	modelOK := refNull(top["model"]) || top["model"][0] == '"'
	if modelOK {
		p.Model = refString(top["model"])
	}
	p.Stream = string(top["stream"]) == "true"
	for _, name := range []string{"max_tokens", "max_output_tokens", "max_completion_tokens"} {
		if refNull(top[name]) {
			continue
		}
		p.MaxTokens = 0
		if strings.Trim(string(top[name]), "0123456789") == "" {
			n, err := strconv.ParseUint(string(top[name]), 10, 31)
			if err != nil {
				n = math.MaxInt32
			}
			p.MaxTokens = int(n)
		}
	}
	if api == APIUnknown {
		p.Reason = ReasonPath
		return p
	}
	if !modelOK {
		p.Reason = ReasonInvalid
		return p
	}
	r := &reference{secret: secret, api: api}
	defer func() {
		if s, ok := recover().(refStop); ok {
			p.Keys, p.Bytes, p.Reason = nil, 0, s.reason
		}
	}()
	if api == APIResponses {
		refIDs(top)
	}
	salt := ""
	if !refNull(top["cache_salt"]) {
		salt = refText(top["cache_salt"])
	}
	switch api {
	case APIChat:
		r.chat(top)
	case APICompletions:
		r.completions(top, o.TokenArrays)
	case APIMessages:
		r.messages(top)
	case APIResponses:
		r.responses(top)
	}
	p.Bytes = len(r.out)
	p.Keys = refKeys(secret, p.Model, salt, r.out)
	if len(p.Keys) == 0 {
		p.Reason = ReasonShort
	}
	return p
}

func refKeys(secret [32]byte, model, salt string, canonical []byte) (keys []Key) {
	header := []byte("tautline/key/1\x00\x00")
	header = binary.LittleEndian.AppendUint64(header, uint64(len(model)))
	header = append(header, model...)
	header = binary.LittleEndian.AppendUint64(header, uint64(len(salt)))
	header = append(header, salt...)
	for len(header)%32 != 0 {
		header = append(header, 0)
	}
	all := append(header, canonical...)
	block := 0
	for n := 0; n < 512; n++ {
		stride := 1
		if n >= 448 {
			stride = []int{2, 4, 8, 16, 32, 64, 128, 256}[(n-448)/8]
		}
		block += stride
		if block*256 > len(canonical) {
			break
		}
		keys = append(keys, Key(highwayhash.Sum64(all[:len(header)+block*256], secret[:])))
	}
	return keys
}

func refIDs(top refObject) {
	continued := false
	for _, name := range []string{"previous_response_id", "request_id", "conversation"} {
		v := top[name]
		if refNull(v) {
			continue
		}
		if name == "conversation" && v[0] == '{' {
			v = refMap(v)["id"]
			if refNull(v) {
				stop(ReasonInvalid)
			}
		}
		if v[0] != '"' {
			stop(ReasonInvalid)
		}
		continued = continued || name != "request_id"
	}
	if continued {
		stop(ReasonContinued)
	}
}

func refNull(v json.RawMessage) bool { return len(v) == 0 || v[0] == 'n' }

func refString(v json.RawMessage) (s string) {
	if !refNull(v) {
		if err := json.Unmarshal(v, &s); err != nil {
			panic(err)
		}
	}
	return s
}

// refText is refString for what must be a string.
func refText(v json.RawMessage) string {
	if refNull(v) || v[0] != '"' {
		stop(ReasonInvalid)
	}
	return refString(v)
}

func refMap(v json.RawMessage) (m refObject) {
	if refNull(v) || v[0] != '{' {
		stop(ReasonInvalid)
	}
	if err := json.Unmarshal(v, &m); err != nil {
		panic(err)
	}
	return m
}

func refList(v json.RawMessage) (l []json.RawMessage) {
	if refNull(v) || v[0] != '[' {
		stop(ReasonInvalid)
	}
	if err := json.Unmarshal(v, &l); err != nil {
		panic(err)
	}
	return l
}

func refEmpty(v json.RawMessage) bool { return !refNull(v) && v[0] == '[' && len(refList(v)) == 0 }

func refDepth(body []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

func (r *reference) field(tag byte, content string) {
	r.out = append(append(r.out, 0xFF, tag), content...)
}

func (r *reference) text(tag byte, v json.RawMessage) { r.field(tag, refText(v)) }

func (r *reference) textIf(tag byte, v json.RawMessage) {
	if !refNull(v) {
		r.text(tag, v)
	}
}

func (r *reference) sum(b string) string {
	return string(binary.LittleEndian.AppendUint64(nil, highwayhash.Sum64([]byte(b), r.secret[:])))
}

func (r *reference) json(tag byte, v json.RawMessage) {
	if v = bytes.TrimSpace(v); len(v) > 16384 {
		r.field(tag, "\xFD"+r.sum(string(v)))
		return
	}
	r.field(tag, refCanon(v, r.api == APIMessages && tag != 'a'))
}

func (r *reference) jsonIf(tag byte, v json.RawMessage) {
	if !refNull(v) {
		r.json(tag, v)
	}
}

func refCanon(v json.RawMessage, strip bool) string {
	v = bytes.TrimSpace(v)
	switch v[0] {
	case '"':
		return "\xFE" + refString(v) + "\xFE"
	case '[':
		var parts []string
		for _, e := range refList(v) {
			parts = append(parts, refCanon(e, strip))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case '{':
		m := refMap(v)
		var names, parts []string
		for name := range m {
			if strip && name == "cache_control" && refMarker(m[name]) {
				continue
			}
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			parts = append(parts, "\xFE"+name+"\xFE:"+refCanon(m[name], strip))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return string(v)
}

func refMarker(v json.RawMessage) bool {
	if v[0] != '{' {
		return v[0] == 'n'
	}
	kind := refMap(v)["type"]
	return !refNull(kind) && kind[0] == '"' && refString(kind) == "ephemeral"
}

func (r *reference) media(tag byte, uuid json.RawMessage, values ...json.RawMessage) {
	if !refNull(uuid) {
		if id := refText(uuid); id != "" {
			r.field(tag, "u"+r.sum(id))
			return
		}
	}
	for _, v := range values {
		if refNull(v) {
			continue
		}
		if v[0] == '"' {
			r.field(tag, "s"+r.sum(refString(v)))
		} else {
			r.field(tag, "v"+r.sum(string(bytes.TrimSpace(v))))
		}
		return
	}
	stop(ReasonInvalid)
}

type refHead struct {
	name, def string
	tag       byte
}

func (r *reference) head(top refObject, fields []refHead) {
	for _, f := range fields {
		v := top[f.name]
		switch {
		case refNull(v):
		case v[0] != '"' && string(v) == f.def:
		case v[0] == '"' && f.def == "auto" && refString(v) == "auto":
		case f.tag == 'T':
			r.text('T', v)
		default:
			r.json(f.tag, v)
		}
	}
}

func (r *reference) effort(v json.RawMessage) {
	if !refNull(v) {
		r.jsonIf('e', refMap(v)["effort"])
	}
}

func (r *reference) contents(v json.RawMessage, part func(json.RawMessage)) {
	switch {
	case refNull(v):
	case v[0] == '[':
		for _, e := range refList(v) {
			part(e)
		}
	default:
		r.text('x', v)
	}
}

func (r *reference) chat(top refObject) {
	if refNull(top["messages"]) || refEmpty(top["messages"]) {
		stop(ReasonNoPrompt)
	}
	r.head(top, []refHead{
		{"chat_template", "", 'T'}, {"chat_template_kwargs", "", 'K'}, {"documents", "", 'D'},
		{"tools", "", 't'}, {"functions", "", 'f'}, {"tool_choice", "auto", 'h'},
		{"reasoning_effort", "", 'e'}, {"add_special_tokens", "false", 'b'},
		{"mm_processor_kwargs", "", 'm'}, {"media_io_kwargs", "", 'o'}, {"truncate_prompt_tokens", "", 'z'},
	})
	for _, raw := range refList(top["messages"]) {
		m := refMap(raw)
		r.text('R', m["role"])
		r.textIf('n', m["name"])
		r.contents(m["content"], r.part)
		r.jsonIf('l', m["tools"])
		r.jsonIf('w', m["task"])
		if !refNull(m["function_call"]) {
			r.function(m["function_call"])
		}
		if !refNull(m["tool_calls"]) {
			for _, raw := range refList(m["tool_calls"]) {
				c := refMap(raw)
				switch {
				case !refNull(c["function"]):
					r.function(c["function"])
				case !refNull(c["custom"]):
					r.function(c["custom"])
				default:
					stop(ReasonPart)
				}
			}
		}
	}
}

func (r *reference) function(v json.RawMessage) {
	f := refMap(v)
	r.text('c', f["name"])
	r.arguments(f["arguments"])
	r.textIf('A', f["input"])
}

func (r *reference) arguments(v json.RawMessage) {
	if refNull(v) || v[0] != '"' {
		r.jsonIf('a', v)
		return
	}
	s := refString(v)
	if len(s) <= 16384 && json.Valid([]byte(s)) && refDepth([]byte(s)) <= 512 {
		r.field('a', refCanon(json.RawMessage(s), false))
	} else {
		r.field('A', s)
	}
}

func (r *reference) linked(tag byte, uuid, v json.RawMessage, names ...string) {
	if refNull(v) || v[0] == '"' {
		r.media(tag, uuid, v)
		return
	}
	m := refMap(v)
	var values []json.RawMessage
	for _, name := range names {
		values = append(values, m[name])
	}
	r.media(tag, uuid, values...)
}

func (r *reference) part(v json.RawMessage) {
	if !refNull(v) && v[0] == '"' {
		r.text('x', v)
		return
	}
	p := refMap(v)
	if refNull(p["type"]) {
		for _, short := range []struct {
			name string
			tag  byte
		}{{"image_url", 'G'}, {"audio_url", 'U'}, {"video_url", 'V'}} {
			if _, there := p[short.name]; there {
				r.linked(short.tag, p["uuid"], p[short.name], "url")
				return
			}
		}
		stop(ReasonPart)
	}
	switch refText(p["type"]) {
	case "text", "input_text", "output_text":
		r.text('x', p["text"])
	case "refusal":
		r.text('x', p["refusal"])
	case "thinking":
	case "tool_reference":
		r.text('q', p["name"])
	case "image_url":
		r.linked('G', p["uuid"], p["image_url"], "url")
	case "audio_url":
		r.linked('U', p["uuid"], p["audio_url"], "url")
	case "video_url":
		r.linked('V', p["uuid"], p["video_url"], "url")
	case "input_image":
		if refNull(p["image_url"]) {
			r.media('G', p["uuid"], p["file_id"])
		} else {
			r.linked('G', p["uuid"], p["image_url"], "url")
		}
	case "input_audio":
		r.linked('U', p["uuid"], p["input_audio"], "data")
	case "image_embeds":
		r.media('y', p["uuid"], p["image_embeds"])
	case "audio_embeds":
		r.media('u', p["uuid"], p["audio_embeds"])
	case "prompt_embeds":
		r.media('E', p["uuid"], p["prompt_embeds"], p["data"])
	case "file":
		r.linked('F', p["uuid"], p["file"], "file_data", "file_id")
	case "input_file":
		r.media('F', p["uuid"], p["file_data"], p["file_id"], p["file_url"])
	default:
		stop(ReasonPart)
	}
}

func (r *reference) completions(top refObject, tokenArrays bool) {
	prompt, embeds := top["prompt"], top["prompt_embeds"]
	if refNull(prompt) && refNull(embeds) || refEmpty(prompt) {
		stop(ReasonNoPrompt)
	}
	r.head(top, []refHead{
		{"add_special_tokens", "true", 'b'}, {"mm_processor_kwargs", "", 'm'},
		{"truncate_prompt_tokens", "", 'z'}, {"suffix", "", 's'},
	})
	if !refNull(embeds) {
		r.media('E', nil, embeds)
	}
	if refNull(prompt) {
		return
	}
	if prompt[0] != '[' {
		r.text('p', prompt)
		return
	}
	list := refList(prompt)
	switch c := list[0][0]; {
	case c == '"':
		if len(list) > 1 {
			stop(ReasonPrompts)
		}
		r.text('p', list[0])
		return
	case c == '[':
		if len(list) > 1 {
			stop(ReasonPrompts)
		}
		if list = refList(list[0]); len(list) == 0 {
			stop(ReasonNoPrompt)
		}
	case c < '0' || c > '9':
		stop(ReasonInvalid)
	}
	if !tokenArrays {
		stop(ReasonTokens)
	}
	r.field('k', "")
	for _, v := range list {
		id, err := strconv.ParseUint(string(v), 10, 32)
		if err != nil {
			stop(ReasonInvalid)
		}
		r.out = binary.LittleEndian.AppendUint32(r.out, uint32(id))
	}
}

func (r *reference) messages(top refObject) {
	if refNull(top["messages"]) || refEmpty(top["messages"]) {
		stop(ReasonNoPrompt)
	}
	r.head(top, []refHead{{"chat_template_kwargs", "", 'K'}, {"tools", "", 't'}})
	if choice := top["tool_choice"]; !refNull(choice) {
		kind := refMap(choice)["type"]
		if refNull(kind) || kind[0] != '"' || refString(kind) != "auto" {
			r.json('h', choice)
		}
	}
	r.effort(top["output_config"])
	if !refNull(top["system"]) {
		r.field('R', "system")
		r.contents(top["system"], func(v json.RawMessage) {
			b := refMap(v)
			if refText(b["type"]) != "text" {
				stop(ReasonPart)
			}
			if !strings.HasPrefix(refText(b["text"]), "x-anthropic-billing-header") {
				r.text('x', b["text"])
			}
		})
	}
	for _, raw := range refList(top["messages"]) {
		m := refMap(raw)
		r.text('R', m["role"])
		r.contents(m["content"], r.block)
	}
}

func (r *reference) block(v json.RawMessage) {
	b := refMap(v)
	switch refText(b["type"]) {
	case "text":
		r.text('x', b["text"])
	case "image":
		r.source('G', b["source"])
	case "document":
		r.textIf('N', b["title"])
		r.textIf('C', b["context"])
		r.source('F', b["source"])
	case "container_upload":
		r.media('F', nil, b["file_id"])
	case "thinking", "redacted_thinking":
	case "tool_use", "server_tool_use":
		r.text('c', b["name"])
		r.jsonIf('a', b["input"])
	case "tool_reference":
		if refNull(b["tool_name"]) {
			r.text('q', b["name"])
		} else {
			r.text('q', b["tool_name"])
		}
	case "tool_result":
		r.field('r', "")
		if string(b["is_error"]) == "true" {
			r.field('!', "")
		}
		r.contents(b["content"], r.block)
		r.field('.', "")
	case "search_result", "mcp_tool_use", "mcp_tool_result",
		"web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
		"bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result":
		r.json('i', v)
	default:
		stop(ReasonPart)
	}
}

func (r *reference) source(tag byte, v json.RawMessage) {
	s := refMap(v)
	if refNull(s["data"]) && refNull(s["url"]) && refNull(s["file_id"]) && !refNull(s["content"]) && s["content"][0] == '[' {
		r.json('i', s["content"])
		return
	}
	r.media(tag, nil, s["data"], s["url"], s["file_id"], s["content"])
}

func (r *reference) responses(top refObject) {
	input := top["input"]
	if refNull(input) || refEmpty(input) {
		stop(ReasonNoPrompt)
	}
	r.head(top, []refHead{
		{"prompt", "", 'P'}, {"tools", "", 't'}, {"tool_choice", "auto", 'h'},
		{"mm_processor_kwargs", "", 'm'}, {"truncate_prompt_tokens", "", 'z'},
	})
	r.effort(top["reasoning"])
	r.textIf('I', top["instructions"])
	if !refNull(top["previous_input_messages"]) {
		for _, e := range refList(top["previous_input_messages"]) {
			r.json('v', e)
		}
	}
	if input[0] != '[' {
		r.field('R', "user")
		r.text('x', input)
		return
	}
	for _, raw := range refList(input) {
		r.item(raw)
	}
}

func (r *reference) item(v json.RawMessage) {
	i := refMap(v)
	kind := "message"
	if !refNull(i["type"]) {
		kind = refText(i["type"])
	}
	switch kind {
	case "message":
		r.text('R', i["role"])
		r.contents(i["content"], r.part)
	case "function_call":
		r.text('c', i["name"])
		r.arguments(i["arguments"])
	case "custom_tool_call":
		r.text('c', i["name"])
		r.textIf('A', i["input"])
	case "function_call_output", "custom_tool_call_output":
		r.field('r', "")
		if out := i["output"]; refNull(out) || out[0] == '"' || out[0] == '[' {
			r.contents(out, r.part)
		} else {
			r.json('i', out)
		}
		r.field('.', "")
	case "reasoning", "compaction_trigger":
	case "item_reference":
		stop(ReasonContinued)
	case "compaction", "additional_tools",
		"file_search_call", "web_search_call", "image_generation_call", "code_interpreter_call",
		"computer_call", "computer_call_output", "local_shell_call", "local_shell_call_output",
		"shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
		"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call",
		"tool_search_call", "tool_search_output", "program", "program_output":
		r.json('i', v)
	default:
		stop(ReasonPart)
	}
}
