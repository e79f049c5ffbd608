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
	o := r.object(s.Start, 1)
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

func (r *reader) systemBlock(s Span) bool {
	if r.kind(s) != '{' {
		return r.fail(ReasonInvalid)
	}
	var kind, text Span
	o := r.object(s.Start, 1)
	for o.next(r) {
		switch string(o.name) {
		case "type":
			kind = o.value
		case "text":
			text = o.value
		}
	}
	if !o.ok {
		return r.fail(ReasonInvalid)
	}
	name, ok := r.str(kind)
	if !ok {
		return r.fail(ReasonInvalid)
	}
	if string(name) != "text" {
		return r.fail(ReasonPart)
	}
	if r.kind(text) != '"' {
		return r.fail(ReasonInvalid)
	}
	n, _, how := decode(r.stage[:len(billingHeader)+2*decodeRoom], r.body[:text.End], text.Start+1)
	if how == decodedBad {
		return r.fail(ReasonInvalid)
	}
	return bytes.HasPrefix(r.stage[:n], billingHeader) || r.text(tagText, text)
}

func (r *reader) blockMessage(s Span) bool {
	if r.kind(s) != '{' {
		return r.fail(ReasonInvalid)
	}
	var role, content Span
	o := r.object(s.Start, 1)
	for o.next(r) {
		switch string(o.name) {
		case "role":
			role = o.value
		case "content":
			content = o.value
		}
	}
	if !o.ok {
		return r.fail(ReasonInvalid)
	}
	return r.text(tagRole, role) && r.contents(content, (*reader).block)
}

// block writes one content block of a message or a tool result. Members that
// are not named here, cache_control among them, do not count.
func (r *reader) block(s Span) bool {
	if r.kind(s) != '{' {
		return r.fail(ReasonInvalid)
	}
	var p struct{ kind, text, source, name, toolName, input, content, isError, fileID, title, context Span }
	o := r.object(s.Start, 1)
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
		return r.fail(ReasonInvalid)
	}
	kind, ok := r.str(p.kind)
	if !ok {
		return r.fail(ReasonInvalid)
	}
	switch string(kind) {
	case "text":
		return r.text(tagText, p.text)
	case "image":
		return r.source(tagImage, p.source)
	case "document":
		return r.textIf(tagTitle, p.title) && r.textIf(tagContext, p.context) && r.source(tagFile, p.source)
	case "container_upload":
		return r.media(tagFile, Span{}, p.fileID)
	case "thinking", "redacted_thinking":
		return true
	case "tool_use", "server_tool_use":
		return r.text(tagCall, p.name) && r.jsonIf(tagArguments, p.input)
	case "tool_reference":
		if r.null(p.toolName) {
			return r.text(tagReference, p.name)
		}
		return r.text(tagReference, p.toolName)
	case "tool_result":
		r.tag(tagResult)
		if r.kind(p.isError) == 't' {
			r.tag(tagFailed)
		}
		if !r.contents(p.content, (*reader).block) {
			return false
		}
		r.tag(tagEnd)
		return true
	case "search_result", "mcp_tool_use", "mcp_tool_result",
		"web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
		"bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result":
		return r.json(tagItem, s)
	}
	return r.fail(ReasonPart)
}

// source writes the source object of an image or a document.
func (r *reader) source(tag byte, s Span) bool {
	if r.kind(s) != '{' {
		return r.fail(ReasonInvalid)
	}
	var data, url, fileID, content Span
	o := r.object(s.Start, 1)
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
