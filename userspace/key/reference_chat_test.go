package key

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
)

// The reference's canonical prompts of chat and text completions.

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
