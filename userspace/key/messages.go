package key

import "bytes"

// messages writes an Anthropic Messages prompt: head, system, then message by
// message.
func (r *reader) messages() bool {
	list := r.top[memberMessages]
	if r.null(list) || r.empty(list) {
		return r.fail(ReasonNoPrompt)
	}
	return r.head(messagesHead[:]) &&
		r.blockToolChoice() &&
		r.effort(memberOutputConfig) &&
		r.system() &&
		r.list(list, (*reader).blockMessage)
}

// blockToolChoice writes the tool choice, an object here, unless it is the
// default.
func (r *reader) blockToolChoice() bool {
	s := r.top[memberToolChoice]
	if r.null(s) {
		return true
	}
	if r.kind(s) != '{' {
		return r.fail(ReasonInvalid)
	}
	var kind Span
	o := r.object(s.Start)
	for o.next(r) {
		if string(o.name) == "type" {
			kind = o.value
		}
	}
	if !o.ok {
		return r.fail(ReasonInvalid)
	}
	return kind != Span{} && r.isDefault(kind, "auto") || r.json(tagToolChoice, s)
}

// billingHeader begins a system block that clients change with every request
// and engines drop.
var billingHeader = []byte("x-anthropic-billing-header")

func (r *reader) system() bool {
	s := r.top[memberSystem]
	if r.null(s) {
		return true
	}
	r.tag(tagRole)
	r.chain.write([]byte("system"))
	return r.contents(s, (*reader).systemBlock)
}

func (r *reader) systemBlock(at int) int {
	if r.body[at] != '{' {
		return r.refuse(ReasonInvalid)
	}
	var kind, text Span
	o := r.object(at)
	for o.next(r) {
		switch string(o.name) {
		case "type":
			kind = o.value
		case "text":
			text = o.value
		}
	}
	if !o.ok {
		return r.refuse(ReasonInvalid)
	}
	name, ok := r.str(kind)
	if !ok {
		return r.refuse(ReasonInvalid)
	}
	if string(name) != "text" {
		return r.refuse(ReasonPart)
	}
	if r.kind(text) != '"' {
		return r.refuse(ReasonInvalid)
	}
	n, _, how := decode(r.stage[:len(billingHeader)+2*decodeRoom], r.body[:text.End], text.Start+1)
	if how == decodedBad {
		return r.refuse(ReasonInvalid)
	}
	return o.after(bytes.HasPrefix(r.stage[:n], billingHeader) || r.text(tagText, text))
}

func (r *reader) blockMessage(at int) int {
	if r.body[at] != '{' {
		return r.refuse(ReasonInvalid)
	}
	var role, content Span
	o := r.object(at)
	for o.next(r) {
		switch string(o.name) {
		case "role":
			role = o.value
		case "content":
			content = o.value
		}
	}
	if !o.ok {
		return r.refuse(ReasonInvalid)
	}
	return o.after(r.text(tagRole, role) && r.contents(content, (*reader).block))
}

// block writes one content block of a message or a tool result. Members that
// are not named here, cache_control among them, do not count.
func (r *reader) block(at int) int {
	if r.body[at] != '{' {
		return r.refuse(ReasonInvalid)
	}
	var p struct{ kind, text, source, name, toolName, input, content, isError, fileID, title, context Span }
	o := r.object(at)
	for o.next(r) {
		switch string(o.name) {
		case "type":
			p.kind = o.value
		case "text":
			p.text = o.value
		case "source":
			p.source = o.value
		case "name":
			p.name = o.value
		case "tool_name":
			p.toolName = o.value
		case "input":
			p.input = o.value
		case "content":
			p.content = o.value
		case "is_error":
			p.isError = o.value
		case "file_id":
			p.fileID = o.value
		case "title":
			p.title = o.value
		case "context":
			p.context = o.value
		}
	}
	if !o.ok {
		return r.refuse(ReasonInvalid)
	}
	kind, ok := r.str(p.kind)
	if !ok {
		return r.refuse(ReasonInvalid)
	}
	switch string(kind) {
	case "text":
		return o.after(r.text(tagText, p.text))
	case "image":
		return o.after(r.source(tagImage, p.source))
	case "document":
		return o.after(r.textIf(tagTitle, p.title) && r.textIf(tagContext, p.context) && r.source(tagFile, p.source))
	case "container_upload":
		return o.after(r.media(tagFile, Span{}, p.fileID))
	case "thinking", "redacted_thinking":
		return o.after(true)
	case "tool_use", "server_tool_use":
		return o.after(r.text(tagCall, p.name) && r.jsonIf(tagArguments, p.input))
	case "tool_reference":
		if r.null(p.toolName) {
			return o.after(r.text(tagReference, p.name))
		}
		return o.after(r.text(tagReference, p.toolName))
	case "tool_result":
		r.tag(tagResult)
		if r.kind(p.isError) == 't' {
			r.tag(tagFailed)
		}
		if !r.contents(p.content, (*reader).block) {
			return bad
		}
		r.tag(tagEnd)
		return o.after(true)
	case "search_result", "mcp_tool_use", "mcp_tool_result",
		"web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
		"bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result":
		return o.after(r.json(tagItem, Span{at, o.i}))
	}
	return r.refuse(ReasonPart)
}

// source writes the source object of an image or a document.
func (r *reader) source(tag byte, s Span) bool {
	if r.kind(s) != '{' {
		return r.fail(ReasonInvalid)
	}
	var data, url, fileID, content Span
	o := r.object(s.Start)
	for o.next(r) {
		switch string(o.name) {
		case "data":
			data = o.value
		case "url":
			url = o.value
		case "file_id":
			fileID = o.value
		case "content":
			content = o.value
		}
	}
	if !o.ok {
		return r.fail(ReasonInvalid)
	}
	if r.null(data) && r.null(url) && r.null(fileID) && r.kind(content) == '[' {
		return r.json(tagItem, content) // blocks: cache_control must not count
	}
	return r.media(tag, Span{}, data, url, fileID, content)
}
