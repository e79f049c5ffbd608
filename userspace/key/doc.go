// Package key turns a request body into the keys of its canonical prompt.
//
// It is pure: no clock, no network, no globals that change. One scan over the
// body records the top-level members; then only what shapes the prompt is
// walked, in canonical order and an element at a time. Nothing is decoded into
// a document tree, and memory beside the body stays small and is reused.
//
// # What is checked
//
// A body must be UTF-8, one JSON object, and nest at most 512 deep. What
// counts for the prompt is parsed strictly. What does not count is passed over
// by its strings and brackets alone, so a fault there may go unseen: the
// engine refuses such a body, and its keys are never confirmed. JSON is as
// encoding/json has it: of equal names the last wins, at every level, and half
// a surrogate pair is U+FFFD. The whole prompt is read even when all keys are
// known: then it is only counted, and an unknown part still means no keys.
//
// # Canonical prompt
//
// The prompt is a sequence of tagged fields (see field.go); text is decoded
// and needs no length before it, so a conversation's next turn only appends.
// Chat Completions, Messages and Responses share their tags: a prompt that an
// engine renders alike may have the same keys in all three. Null is the same
// as absent. A JSON value of at most 16 KiB as sent counts in canonical form:
// compact, names sorted, strings decoded, numbers with the digits as sent (1
// and 1.0 differ). A longer one counts by a digest of its bytes as sent, white
// space and cache_control included.
//
// The head, what shapes a prompt from its start, comes first and separates all
// keys. In this order, JSON unless noted:
//
//	chat         chat_template (text), chat_template_kwargs, documents, tools,
//	             functions, tool_choice unless "auto", reasoning_effort,
//	             add_special_tokens unless false, mm_processor_kwargs,
//	             media_io_kwargs, truncate_prompt_tokens
//	completions  add_special_tokens unless true, mm_processor_kwargs,
//	             truncate_prompt_tokens, suffix, prompt_embeds (a digest)
//	messages     chat_template_kwargs, tools, tool_choice unless of type "auto",
//	             output_config.effort, system (role "system")
//	responses    prompt, tools, tool_choice unless "auto", mm_processor_kwargs,
//	             truncate_prompt_tokens, reasoning.effort, instructions (text),
//	             previous_input_messages (each element)
//
// model and cache_salt are folded into the hash itself, for every API; an
// empty salt is none. add_generation_prompt and continue_final_message change
// only the end of a prompt: they do not count, for the head is the same in the
// engine's cache. No other top-level member counts.
//
// A message counts by role, name, content, tools, task and calls. Not by ids
// of calls, which clients draw anew, nor by reasoning, refusal or audio beside
// the content. A call counts by its name and arguments; an arguments string
// that holds JSON of at most 16 KiB decoded counts as that JSON.
//
// # Part and item kinds
//
// "digest" is one field of fixed size for the whole part: of its uuid if it has
// one (chat and responses), else of the first value named. "JSON" is the whole
// block or item as one JSON value.
//
//	chat and responses parts (the kinds of both are read in both)
//	  text, input_text, output_text, bare string   keyed    text
//	  refusal                                      keyed    text
//	  image_url; {"image_url"} without type        keyed    digest: string or .url
//	  audio_url, video_url; the same without type  keyed    digest: string or .url
//	  input_image                                  keyed    digest: image_url, file_id
//	  input_audio                                  keyed    digest: .data
//	  image_embeds, audio_embeds                   keyed    digest: the value as sent
//	  prompt_embeds                                keyed    digest: prompt_embeds, data
//	  file                                         keyed    digest: .file_data, .file_id
//	  input_file                                   keyed    digest: file_data, file_id, file_url
//	  tool_reference                               keyed    name
//	  thinking                                     skipped
//	  image_pil, any other                         no keys
//	chat tool calls
//	  function, function_call                      keyed    name, arguments
//	  custom                                       keyed    name, input
//	  any other                                    no keys
//	messages blocks
//	  text                                         keyed    text
//	  image                                        keyed    digest: source.data, .url, .file_id
//	  document                                     keyed    title, context; digest as image, or
//	                                                        source.content (JSON if blocks)
//	  container_upload                             keyed    digest: file_id
//	  tool_use, server_tool_use                    keyed    name, input
//	  tool_result                                  keyed    is_error, content block by block
//	  tool_reference                               keyed    tool_name or name
//	  search_result, mcp_tool_use, mcp_tool_result keyed    JSON
//	  web_search_, web_fetch_, code_execution_,
//	  bash_code_execution_, tool_search_,
//	  text_editor_code_execution_tool_result       keyed    JSON
//	  thinking, redacted_thinking                  skipped
//	  any other; in system any but text            no keys
//	  system text that begins with
//	  x-anthropic-billing-header                   skipped
//	  cache_control, wherever a marker may stand   skipped  (not inside tool_use input)
//	responses items
//	  message, no type                             keyed    role, content part by part
//	  function_call                                keyed    name, arguments
//	  custom_tool_call                             keyed    name, input
//	  function_call_output, custom_tool_call_output keyed   output part by part, or JSON
//	  compaction, additional_tools, file_search_call,
//	  web_search_call, image_generation_call,
//	  code_interpreter_call, computer_call(_output),
//	  local_shell_call(_output), shell_call(_output),
//	  apply_patch_call(_output), mcp_list_tools,
//	  mcp_approval_request, mcp_approval_response,
//	  mcp_call, tool_search_call, tool_search_output,
//	  program(_output)                             keyed    JSON
//	  reasoning, compaction_trigger                skipped
//	  item_reference                               no keys  (continues a stored item)
//	  any other                                    no keys
//	completions prompts
//	  string, [string]                             keyed    text
//	  [id, ...], [[id, ...]]                       keyed    if token_arrays is on, else no keys
//	  several                                      no keys
package key
