package key

// member is a top-level member of a body that is read.
type member uint8

const (
	memberOther member = iota
	memberModel
	memberStream
	memberStreamOptions
	memberMaxTokens
	memberMaxCompletionTokens
	memberMaxOutputTokens
	memberCacheSalt
	memberPreviousResponseID
	memberConversation
	memberRequestID

	memberMessages
	memberPrompt
	memberPromptEmbeds
	memberInput
	memberSystem
	memberInstructions
	memberEarlierMessages

	memberChatTemplate
	memberChatTemplateKwargs
	memberDocuments
	memberTools
	memberFunctions
	memberToolChoice
	memberReasoningEffort
	memberReasoning
	memberOutputConfig
	memberAddSpecialTokens
	memberProcessorKwargs
	memberMediaIOKwargs
	memberTruncatePromptTokens
	memberSuffix

	memberCount
)

// members are the values of the top-level members, by member.
type members [memberCount]Span

func memberOf(name []byte) member {
	switch string(name) {
	case "model":
		return memberModel
	case "stream":
		return memberStream
	case "stream_options":
		return memberStreamOptions
	case "max_tokens":
		return memberMaxTokens
	case "max_completion_tokens":
		return memberMaxCompletionTokens
	case "max_output_tokens":
		return memberMaxOutputTokens
	case "cache_salt":
		return memberCacheSalt
	case "previous_response_id":
		return memberPreviousResponseID
	case "conversation":
		return memberConversation
	case "request_id":
		return memberRequestID
	case "messages":
		return memberMessages
	case "prompt":
		return memberPrompt
	case "prompt_embeds":
		return memberPromptEmbeds
	case "input":
		return memberInput
	case "system":
		return memberSystem
	case "instructions":
		return memberInstructions
	case "previous_input_messages":
		return memberEarlierMessages
	case "chat_template":
		return memberChatTemplate
	case "chat_template_kwargs":
		return memberChatTemplateKwargs
	case "documents":
		return memberDocuments
	case "tools":
		return memberTools
	case "functions":
		return memberFunctions
	case "tool_choice":
		return memberToolChoice
	case "reasoning_effort":
		return memberReasoningEffort
	case "reasoning":
		return memberReasoning
	case "output_config":
		return memberOutputConfig
	case "add_special_tokens":
		return memberAddSpecialTokens
	case "mm_processor_kwargs":
		return memberProcessorKwargs
	case "media_io_kwargs":
		return memberMediaIOKwargs
	case "truncate_prompt_tokens":
		return memberTruncatePromptTokens
	case "suffix":
		return memberSuffix
	}
	return memberOther
}

// headField is a member that shapes the prompt from its start, so it stands
// before everything else and separates all keys.
type headField struct {
	member member
	tag    byte
	def    string // the value that means the same as none, if there is one
}

// The heads of the four APIs, in canonical order.
var (
	chatHead = [...]headField{
		{memberChatTemplate, tagTemplate, ""},
		{memberChatTemplateKwargs, tagTemplateArgs, ""},
		{memberDocuments, tagDocuments, ""},
		{memberTools, tagTools, ""},
		{memberFunctions, tagFunctions, ""},
		{memberToolChoice, tagToolChoice, "auto"},
		{memberReasoningEffort, tagEffort, ""},
		{memberAddSpecialTokens, tagSpecialTokens, "false"},
		{memberProcessorKwargs, tagProcessor, ""},
		{memberMediaIOKwargs, tagMediaIO, ""},
		{memberTruncatePromptTokens, tagTruncate, ""},
	}
	completionsHead = [...]headField{
		{memberAddSpecialTokens, tagSpecialTokens, "true"},
		{memberProcessorKwargs, tagProcessor, ""},
		{memberTruncatePromptTokens, tagTruncate, ""},
		{memberSuffix, tagSuffix, ""},
	}
	messagesHead = [...]headField{
		{memberChatTemplateKwargs, tagTemplateArgs, ""},
		{memberTools, tagTools, ""},
	}
	responsesHead = [...]headField{
		{memberPrompt, tagStored, ""},
		{memberTools, tagTools, ""},
		{memberToolChoice, tagToolChoice, "auto"},
		{memberProcessorKwargs, tagProcessor, ""},
		{memberTruncatePromptTokens, tagTruncate, ""},
	}
)

// head writes the head fields that are given. A chat template is text, all
// others are JSON.
func (r *reader) head(fields []headField) bool {
	for _, f := range fields {
		s := r.top[f.member]
		if r.null(s) || r.isDefault(s, f.def) {
			continue
		}
		if f.tag == tagTemplate {
			if !r.text(f.tag, s) {
				return false
			}
		} else if !r.json(f.tag, s) {
			return false
		}
	}
	return true
}

// effort writes the reasoning effort kept inside the object m.
func (r *reader) effort(m member) bool {
	s := r.top[m]
	if r.null(s) {
		return true
	}
	if r.kind(s) != '{' {
		return r.fail(ReasonInvalid)
	}
	var effort Span
	o := r.object(s.Start)
	for o.next(r) {
		if string(o.name) == "effort" {
			effort = o.value
		}
	}
	if !o.ok {
		return r.fail(ReasonInvalid)
	}
	return r.jsonIf(tagEffort, effort)
}
