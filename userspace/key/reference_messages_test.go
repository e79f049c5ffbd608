package key

import (
	"encoding/json"
	"strings"
)

// The reference's canonical prompts of Anthropic's messages and of responses.

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
