package key

// responses writes a Responses prompt: head, instructions, earlier messages,
// then the input item by item.
func (r *reader) responses() bool {
	input := r.top[memberInput]
	if r.null(input) || r.empty(input) {
		return r.fail(ReasonNoPrompt)
	}
	if !r.head(responsesHead[:]) ||
		!r.effort(memberReasoning) ||
		!r.textIf(tagInstructions, r.top[memberInstructions]) {
		return false
	}
	if earlier := r.top[memberEarlierMessages]; !r.null(earlier) && !r.list(earlier, (*reader).earlier) {
		return false
	}
	if r.kind(input) == '[' {
		return r.list(input, (*reader).item)
	}
	r.tag(tagRole)
	r.chain.write([]byte("user"))
	return r.text(tagText, input)
}

// earlier writes one element of previous_input_messages.
func (r *reader) earlier(at int) int {
	end := r.skip(at)
	if end == bad {
		return r.refuse(ReasonInvalid)
	}
	if !r.json(tagEarlier, Span{at, end}) {
		return bad
	}
	return end
}

// item writes one input item.
func (r *reader) item(at int) int {
	if r.body[at] != '{' {
		return r.refuse(ReasonInvalid)
	}
	var p struct{ kind, role, content, name, arguments, input, output Span }
	o := r.object(at)
	for o.next(r) {
		switch string(o.name) {
		case "type":
			p.kind = o.value
		case "role":
			p.role = o.value
		case "content":
			p.content = o.value
		case "name":
			p.name = o.value
		case "arguments":
			p.arguments = o.value
		case "input":
			p.input = o.value
		case "output":
			p.output = o.value
		}
	}
	if !o.ok {
		return r.refuse(ReasonInvalid)
	}
	kind := []byte("message")
	if !r.null(p.kind) {
		var ok bool
		if kind, ok = r.str(p.kind); !ok {
			return r.refuse(ReasonInvalid)
		}
	}
	switch string(kind) {
	case "message":
		return o.after(r.text(tagRole, p.role) && r.contents(p.content, (*reader).part))
	case "function_call":
		return o.after(r.text(tagCall, p.name) && r.arguments(p.arguments))
	case "custom_tool_call":
		return o.after(r.text(tagCall, p.name) && r.textIf(tagInput, p.input))
	case "function_call_output", "custom_tool_call_output":
		r.tag(tagResult)
		if k := r.kind(p.output); k == '"' || k == '[' || r.null(p.output) {
			if !r.contents(p.output, (*reader).part) {
				return bad
			}
		} else if !r.json(tagItem, p.output) {
			return bad
		}
		r.tag(tagEnd)
		return o.after(true)
	case "reasoning", "compaction_trigger":
		return o.after(true)
	case "item_reference":
		return r.refuse(ReasonContinued)
	case "compaction", "additional_tools",
		"file_search_call", "web_search_call", "image_generation_call", "code_interpreter_call",
		"computer_call", "computer_call_output",
		"local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
		"apply_patch_call", "apply_patch_call_output",
		"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call",
		"tool_search_call", "tool_search_output",
		"program", "program_output":
		return o.after(r.json(tagItem, Span{at, o.i}))
	}
	return r.refuse(ReasonPart)
}
