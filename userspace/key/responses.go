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
func (r *reader) earlier(s Span) bool { return r.json(tagEarlier, s) }

// item writes one input item.
func (r *reader) item(s Span) bool {
	if r.kind(s) != '{' {
		return r.fail(ReasonInvalid)
	}
	var p struct{ kind, role, content, name, arguments, input, output Span }
	o := r.object(s.Start, 1)
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
		return r.fail(ReasonInvalid)
	}
	kind := []byte("message")
	if !r.null(p.kind) {
		var ok bool
		if kind, ok = r.str(p.kind); !ok {
			return r.fail(ReasonInvalid)
		}
	}
	switch string(kind) {
	case "message":
		return r.text(tagRole, p.role) && r.contents(p.content, (*reader).part)
	case "function_call":
		return r.text(tagCall, p.name) && r.arguments(p.arguments)
	case "custom_tool_call":
		return r.text(tagCall, p.name) && r.textIf(tagInput, p.input)
	case "function_call_output", "custom_tool_call_output":
		r.tag(tagResult)
		if k := r.kind(p.output); k == '"' || k == '[' || r.null(p.output) {
			if !r.contents(p.output, (*reader).part) {
				return false
			}
		} else if !r.json(tagItem, p.output) {
			return false
		}
		r.tag(tagEnd)
		return true
	case "reasoning", "compaction_trigger":
		return true
	case "item_reference":
		return r.fail(ReasonContinued)
	case "compaction", "additional_tools",
		"file_search_call", "web_search_call", "image_generation_call", "code_interpreter_call",
		"computer_call", "computer_call_output",
		"local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
		"apply_patch_call", "apply_patch_call_output",
		"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call",
		"tool_search_call", "tool_search_output",
		"program", "program_output":
		return r.json(tagItem, s)
	}
	return r.fail(ReasonPart)
}
