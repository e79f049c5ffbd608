package key

// chat writes a Chat Completions prompt: head, then message by message.
func (r *reader) chat() bool {
	messages := r.top[memberMessages]
	if r.null(messages) || r.empty(messages) {
		return r.fail(ReasonNoPrompt)
	}
	return r.head(chatHead[:]) && r.list(messages, (*reader).chatMessage)
}

// chatMessage writes one message. Reasoning, refusal, ids of calls and audio
// references are not read: templates do not render them, or clients differ in
// sending them back.
func (r *reader) chatMessage(at int) int {
	if r.body[at] != '{' {
		return r.refuse(ReasonInvalid)
	}
	var role, name, content, tools, task, call, calls Span
	o := r.object(at)
	for o.next(r) {
		switch string(o.name) {
		case "role":
			role = o.value
		case "name":
			name = o.value
		case "content":
			content = o.value
		case "tools":
			tools = o.value
		case "task":
			task = o.value
		case "function_call":
			call = o.value
		case "tool_calls":
			calls = o.value
		}
	}
	if !o.ok {
		return r.refuse(ReasonInvalid)
	}
	return o.after(r.text(tagRole, role) &&
		r.textIf(tagName, name) &&
		r.contents(content, (*reader).part) &&
		r.jsonIf(tagMessageTools, tools) &&
		r.jsonIf(tagTask, task) &&
		(r.null(call) || r.function(call)) &&
		(r.null(calls) || r.list(calls, (*reader).toolCall)))
}

// toolCall writes one element of tool_calls.
func (r *reader) toolCall(at int) int {
	if r.body[at] != '{' {
		return r.refuse(ReasonInvalid)
	}
	var function, custom Span
	o := r.object(at)
	for o.next(r) {
		switch string(o.name) {
		case "function":
			function = o.value
		case "custom":
			custom = o.value
		}
	}
	switch {
	case !o.ok:
		return r.refuse(ReasonInvalid)
	case !r.null(function):
		return o.after(r.function(function))
	case !r.null(custom):
		return o.after(r.function(custom))
	}
	return r.refuse(ReasonPart)
}

// function writes the name and the arguments of a call, or the input of a
// custom tool.
func (r *reader) function(s Span) bool {
	if r.kind(s) != '{' {
		return r.fail(ReasonInvalid)
	}
	var name, arguments, input Span
	o := r.object(s.Start)
	for o.next(r) {
		switch string(o.name) {
		case "name":
			name = o.value
		case "arguments":
			arguments = o.value
		case "input":
			input = o.value
		}
	}
	if !o.ok {
		return r.fail(ReasonInvalid)
	}
	return r.text(tagCall, name) && r.arguments(arguments) && r.textIf(tagInput, input)
}

// arguments writes tool call arguments: a string that holds JSON counts as
// that JSON, up to canonicalLimit bytes decoded; another string as text; any
// other value as itself.
func (r *reader) arguments(s Span) bool {
	if r.kind(s) != '"' {
		return r.jsonIf(tagArguments, s)
	}
	n, _, how := decode(r.args[:], r.body[:s.End], s.Start+1)
	if how == decodedBad {
		return r.fail(ReasonInvalid)
	}
	if how == decodedAll && n <= canonicalLimit {
		if form := r.canon.form(r.args[:n], false); form != nil {
			r.tag(tagArguments)
			r.chain.write(form)
			return true
		}
	}
	return r.text(tagInput, s)
}
