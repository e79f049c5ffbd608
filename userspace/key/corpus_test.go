package key

import (
	"strings"
	"testing"
)

// sample is one body for one API.
type sample struct {
	name string
	api  API
	body string
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

// samples holds every part and item kind, and the odd shapes of each field.
func samples() []sample {
	long := repeat("All work and no play. ", 40)
	var out []sample
	add := func(api API, name, body string) {
		// LONG is a text of several blocks, so that most samples have keys.
		out = append(out, sample{api.String() + "/" + name, api, strings.ReplaceAll(body, "LONG", long)})
	}
	chat := func(name, parts string) {
		add(APIChat, name, `{"model":"m","messages":[{"role":"user","content":[`+parts+`,{"type":"text","text":"LONG"}]}]}`)
	}
	add(APIChat, "plain", `{"model":"m","messages":[{"role":"system","content":"LONG"},{"role":"user","content":"Hi"}],"stream":true,"max_tokens":7}`)
	add(APIChat, "spaced", " { \"messages\" : [ { \"content\" : \"LONG\" , \"role\" : \"user\" } ] , \"model\" : \"m\" } \n")
	add(APIChat, "escaped names", `{"m\u006fdel":"m\u00e9","messages":[{"r\u006fle":"user","content":"LONG"}]}`)
	add(APIChat, "escapes", `{"messages":[{"role":"user","content":"\u00e9\ud83d\ude00\ud800\ud800\udc00\udc00\ud800x \" \\ \/ \b\f\n\r\t LONG\\"}]}`)
	add(APIChat, "utf8", `{"messages":[{"role":"user","content":"é😀漢字 LONG 漢字"}]}`)
	add(APIChat, "duplicates", `{"model":"a","messages":[],"model":"b","messages":[{"role":"x","role":"user","content":null,"content":"LONG"}],"stream":true,"stream":false}`)
	add(APIChat, "null content", `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\":[1,2.50,-0,1e400,{}],\"a\":\"\\u00e9\"}"}}]},{"role":"tool","tool_call_id":"1","content":"LONG"}]}`)
	add(APIChat, "arguments object", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"b":1,"a":{"d":null,"c":true}}}}]},{"role":"tool","content":"LONG"}]}`)
	add(APIChat, "arguments text", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{broken"}},{"function":{"name":"g","arguments":""}},{"function":{"name":"h","arguments":" 1 "}}]},{"role":"tool","content":"LONG"}]}`)
	add(APIChat, "arguments large", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":\"`+repeat("x", 17000)+`\"}"}}]}]}`)
	add(APIChat, "arguments escaped", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[`+repeat(`\u0031,`, 3000)+`1]"}}]}]}`)
	add(APIChat, "arguments at the limit", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1 `+repeat(" ", 16380)+`]"}}]},{"role":"tool","content":"LONG"}]}`)
	add(APIChat, "arguments over the limit", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1 `+repeat(" ", 16381)+`]"}}]},{"role":"tool","content":"LONG"}]}`)
	add(APIChat, "arguments deep", `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"`+repeat("[", 600)+repeat("]", 600)+`"}}]}]}`)
	add(APIChat, "custom call", `{"messages":[{"role":"assistant","content":"","tool_calls":[{"type":"custom","custom":{"name":"c","input":"LONG"}}]}]}`)
	add(APIChat, "function_call", `{"messages":[{"role":"assistant","function_call":{"name":"f","arguments":"{}"}},{"role":"function","name":"f","content":"LONG"}]}`)
	add(APIChat, "call of unknown kind", `{"messages":[{"role":"assistant","tool_calls":[{"type":"x"}]},{"role":"tool","content":"LONG"}]}`)
	add(APIChat, "reasoning", `{"messages":[{"role":"assistant","reasoning":"x","reasoning_content":"y","refusal":"z","content":"LONG"}]}`)
	add(APIChat, "message tools", `{"messages":[{"role":"developer","tools":[{"b":1,"a":2}],"task":"t","content":"LONG"}]}`)
	add(APIChat, "head", `{"chat_template":"{{x}}","chat_template_kwargs":{"b":false,"a":null},"documents":[{"t":"d"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"z":1,"y":{"x":[]}}}}],"functions":[],"tool_choice":"none","reasoning_effort":"high","add_special_tokens":true,"mm_processor_kwargs":{},"media_io_kwargs":{"video":{"n":4}},"truncate_prompt_tokens":-1,"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "head defaults", `{"tool_choice":"\u0061uto","add_special_tokens":false,"reasoning_effort":null,"add_generation_prompt":false,"continue_final_message":true,"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "tool_choice named", `{"tool_choice":{"type":"function","function":{"name":"f"}},"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "duplicate in tools", `{"tools":[{"a":1,"b":{"x":1,"x":2},"a":{"q":"\u0022\ud800"}}],"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "many members", `{"tools":[{"n":1,"m":2,"l":3,"k":4,"j":5,"i":6,"h":7,"g":8,"f":9,"e":10,"d":11,"c":12,"b":13,"a":14,"m":15,"\u0061":16,"":17}],"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "large tools", `{"tools":[ "`+repeat("y", 16384)+`" , 1],"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "tools at the limit", `{"tools":"`+repeat("y", 16382)+`","messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "tools over the limit", `{"tools":"`+repeat("y", 16383)+`","messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "salt", `{"cache_salt":"s\u00e9","messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "salt empty", `{"cache_salt":"","messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "salt of wrong type", `{"cache_salt":1,"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "model of wrong type", `{"model":1,"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "limits", `{"max_tokens":5,"max_completion_tokens":99999999999999999999999,"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "limit of wrong type", `{"max_tokens":5,"max_completion_tokens":1e3,"max_output_tokens":-1,"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "short", `{"messages":[{"role":"user","content":"Hi"}]}`)
	add(APIChat, "no messages", `{"model":"m"}`)
	add(APIChat, "messages null", `{"messages":null}`)
	add(APIChat, "messages empty", `{"messages":[ ]}`)
	add(APIChat, "messages of wrong type", `{"messages":{"role":"user"}}`)
	add(APIChat, "message of wrong type", `{"messages":["LONG"]}`)
	add(APIChat, "role missing", `{"messages":[{"content":"LONG"}]}`)
	add(APIChat, "content of wrong type", `{"messages":[{"role":"user","content":7}]}`)
	add(APIChat, "deep", `{"x":`+repeat("[", 511)+repeat("]", 511)+`,"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "too deep", `{"x":`+repeat("[", 512)+repeat("]", 512)+`,"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIChat, "reach", `{"messages":[{"role":"user","content":"`+repeat("Beyond the last key. ", 60000)+`"},{"role":"user","content":[{"type":"image_url","image_url":"x"}]}]}`)
	for name, part := range map[string]string{
		"text":                `{"type":"text","text":"a"},{"text":"b","type":"text"}`,
		"string part":         `"bare"`,
		"refusal":             `{"type":"refusal","refusal":"no"}`,
		"image object":        `{"type":"image_url","image_url":{"detail":"low","url":"https:\/\/x/\u00e9"}}`,
		"image string":        `{"type":"image_url","image_url":"https://x/é"}`,
		"image uuid":          `{"type":"image_url","image_url":{"url":"https://x?sig=1"},"uuid":"u1"}`,
		"image cached":        `{"type":"image_url","image_url":null,"uuid":"u1"}`,
		"image empty uuid":    `{"type":"image_url","image_url":"x","uuid":""}`,
		"image without":       `{"type":"image_url"}`,
		"image wrong uuid":    `{"type":"image_url","image_url":"x","uuid":5}`,
		"image of wrong type": `{"type":"image_url","image_url":[]}`,
		"short image":         `{"image_url":"x"}`,
		"short audio":         `{"audio_url":"x","uuid":"u"}`,
		"short video":         `{"video_url":"x"}`,
		"short null":          `{"image_url":null,"uuid":"u"}`,
		"input_audio":         `{"type":"input_audio","input_audio":{"format":"wav","data":"UklG"}}`,
		"audio_url":           `{"type":"audio_url","audio_url":{"url":"x"}}`,
		"video_url":           `{"type":"video_url","video_url":{"url":"x"}}`,
		"image_embeds":        `{"type":"image_embeds","image_embeds":"AA=="}`,
		"image_embeds dict":   `{"type":"image_embeds","image_embeds":{"a": "b"}}`,
		"image_embeds null":   `{"type":"image_embeds","image_embeds":null,"uuid":"u"}`,
		"audio_embeds":        `{"type":"audio_embeds","audio_embeds":"AA=="}`,
		"prompt_embeds":       `{"type":"prompt_embeds","data":"AA=="}`,
		"image_pil":           `{"type":"image_pil","image_pil":"x"}`,
		"file data":           `{"type":"file","file":{"filename":"f","file_data":"AA=="}}`,
		"file id":             `{"type":"file","file":{"file_id":"f1"}}`,
		"thinking":            `{"type":"thinking","thinking":"hm","closed":true}`,
		"tool_reference":      `{"type":"tool_reference","name":"t"}`,
		"input_image":         `{"type":"input_image","image_url":"x","file_id":"y"}`,
		"input_file":          `{"type":"input_file","file_url":"u"}`,
		"unknown":             `{"type":"hologram","text":"x"}`,
		"no type":             `{"text":"x"}`,
		"type of wrong type":  `{"type":1}`,
		"number":              `5`,
		"null":                `null`,
	} {
		chat(name, part)
	}

	add(APICompletions, "string", `{"prompt":"LONG","model":"m"}`)
	add(APICompletions, "one string", `{"prompt":[ "LONG" ],"suffix":"s","add_special_tokens":true}`)
	add(APICompletions, "two strings", `{"prompt":["LONG","LONG"]}`)
	add(APICompletions, "head", `{"prompt":"LONG","add_special_tokens":false,"truncate_prompt_tokens":5,"mm_processor_kwargs":{"a":1},"prompt_embeds":"AA=="}`)
	add(APICompletions, "tokens", `{"prompt":[`+repeat("15, 4294967295,", 60)+`1]}`)
	add(APICompletions, "one token list", `{"prompt":[[`+repeat("15,16,", 60)+`1]]}`)
	add(APICompletions, "two token lists", `{"prompt":[[1],[2]]}`)
	add(APICompletions, "token too large", `{"prompt":[1,4294967296]}`)
	add(APICompletions, "token fraction", `{"prompt":[1,2.0]}`)
	add(APICompletions, "tokens mixed", `{"prompt":[1,"a"]}`)
	add(APICompletions, "negative token", `{"prompt":[-1]}`)
	add(APICompletions, "list of null", `{"prompt":[null]}`)
	add(APICompletions, "empty list", `{"prompt":[]}`)
	add(APICompletions, "empty inner list", `{"prompt":[[]]}`)
	add(APICompletions, "null", `{"prompt":null}`)
	add(APICompletions, "embeds alone", `{"prompt":null,"prompt_embeds":["AA==","BB=="]}`)
	add(APICompletions, "object", `{"prompt":{}}`)

	block := func(name, blocks string) {
		add(APIMessages, name, `{"model":"c","max_tokens":9,"messages":[{"role":"user","content":[`+blocks+`,{"type":"text","text":"LONG"}]}]}`)
	}
	add(APIMessages, "plain", `{"model":"c","system":"LONG","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"text","text":"Yes"}]}]}`)
	add(APIMessages, "billing", `{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1"},{"type":"text","text":"LONG","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"Hi"}]}`)
	add(APIMessages, "billing escaped", `{"system":[{"type":"text","text":"\u0078-anthropic-billing-header"}],"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIMessages, "system image", `{"system":[{"type":"image"}],"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIMessages, "system of wrong type", `{"system":5,"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIMessages, "head", `{"tools":[{"name":"t","input_schema":{"properties":{"cache_control":{"type":"string"}}},"cache_control":{"ttl":"1h","type":"ephemeral"}},{"cache_control":null}],"tool_choice":{"type":"any"},"output_config":{"effort":"low"},"chat_template_kwargs":{"x":1},"cache_salt":"s","messages":[{"role":"user","content":"LONG"}]}`)
	add(APIMessages, "tool_choice auto", `{"tool_choice":{"type":"auto"},"output_config":{},"messages":[{"role":"user","content":"LONG"}]}`)
	add(APIMessages, "tool_choice of wrong type", `{"tool_choice":"auto","messages":[{"role":"user","content":"LONG"}]}`)
	for name, b := range map[string]string{
		"image base64":       `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}`,
		"image url":          `{"type":"image","source":{"type":"url","url":"x"}}`,
		"image file":         `{"type":"image","source":{"type":"file","file_id":"x"}}`,
		"image without":      `{"type":"image","source":{}}`,
		"document pdf":       `{"type":"document","source":{"type":"base64","data":"AA=="},"title":"t","context":"c"}`,
		"document text":      `{"type":"document","source":{"type":"text","data":"words"}}`,
		"document content":   `{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}}`,
		"document string":    `{"type":"document","source":{"type":"content","content":"words"}}`,
		"search_result":      `{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"a"}],"cache_control":{"type":"ephemeral"}}`,
		"thinking":           `{"type":"thinking","thinking":"x","signature":"y"},{"type":"redacted_thinking","data":"z"}`,
		"tool_use":           `{"type":"tool_use","id":"1","name":"n","input":{"b":1,"a":2,"cache_control":{"type":"ephemeral"}}}`,
		"tool_use empty":     `{"type":"tool_use","name":"n"}`,
		"tool_result":        `{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"},{"type":"tool_reference","tool_name":"q"}]},{"type":"tool_result","content":"s","is_error":true},{"type":"tool_result"}`,
		"nested results":     `{"type":"tool_result","content":[{"type":"tool_result","content":[{"type":"image","source":{"data":"x"}}]}]}`,
		"server_tool_use":    `{"type":"server_tool_use","name":"web_search","input":{"q":"x"}}`,
		"web_search result":  `{"type":"web_search_tool_result","content":[{"b":1,"a":2}],"cache_control":null}`,
		"container_upload":   `{"type":"container_upload","file_id":"f"}`,
		"tool_reference":     `{"type":"tool_reference","name":"q"}`,
		"unknown":            `{"type":"hologram"}`,
		"no type":            `{"text":"x"}`,
		"string":             `"x"`,
		"text of wrong type": `{"type":"text","text":[]}`,
	} {
		block(name, b)
	}

	item := func(name, items string) {
		add(APIResponses, name, `{"model":"r","input":[`+items+`,{"role":"user","content":"LONG"}]}`)
	}
	add(APIResponses, "string", `{"input":"LONG","instructions":"Be brief","max_output_tokens":3,"request_id":"resp_x"}`)
	add(APIResponses, "head", `{"input":"LONG","prompt":{"id":"p","variables":{}},"tools":[{"name":"f"}],"tool_choice":"required","reasoning":{"effort":"high","summary":"auto"},"previous_input_messages":[{"b":1,"a":2},"x"],"cache_salt":"s"}`)
	add(APIResponses, "previous", `{"input":"LONG","previous_response_id":"resp_1"}`)
	add(APIResponses, "previous null", `{"input":"LONG","previous_response_id":null,"conversation":null}`)
	add(APIResponses, "previous of wrong type", `{"input":"LONG","previous_response_id":1}`)
	add(APIResponses, "conversation", `{"input":"LONG","conversation":"conv_1"}`)
	add(APIResponses, "conversation object", `{"input":"LONG","conversation":{"id":"conv_0","id":"conv_1"}}`)
	add(APIResponses, "conversation empty", `{"input":"LONG","conversation":{}}`)
	add(APIResponses, "no input", `{"instructions":"LONG"}`)
	add(APIResponses, "reasoning of wrong type", `{"input":"LONG","reasoning":"high"}`)
	for name, it := range map[string]string{
		"message parts":      `{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","file_id":"f"},{"type":"input_file","filename":"n","file_data":"AA=="},{"type":"input_file","file_id":"i"},{"type":"input_file","file_url":"u"}]}`,
		"assistant":          `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]},{"type":"refusal","refusal":"no"}]}`,
		"function_call":      `{"type":"function_call","call_id":"c","name":"f","arguments":"{\"b\":1,\"a\":2}"}`,
		"output string":      `{"type":"function_call_output","call_id":"c","output":"x"}`,
		"output parts":       `{"type":"function_call_output","output":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"data:x"}]}`,
		"output object":      `{"type":"function_call_output","output":{"b":1,"a":2}}`,
		"output null":        `{"type":"function_call_output","output":null}`,
		"custom":             `{"type":"custom_tool_call","name":"f","input":"x"},{"type":"custom_tool_call_output","output":"y"}`,
		"reasoning":          `{"type":"reasoning","summary":[],"encrypted_content":"x"}`,
		"compaction":         `{"type":"compaction","encrypted_content":"x"},{"type":"compaction_trigger"}`,
		"item_reference":     `{"type":"item_reference","id":"msg_1"}`,
		"web_search_call":    `{"type":"web_search_call","id":"w","action":{"type":"search","query":"q"}}`,
		"computer output":    `{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":"` + repeat("A", 17000) + `"}}`,
		"mcp_call":           `{"type":"mcp_call","name":"n","arguments":"{}","output":"o"}`,
		"role missing":       `{"content":"x"}`,
		"unknown":            `{"type":"hologram"}`,
		"type of wrong type": `{"type":[]}`,
		"string":             `"x"`,
	} {
		item(name, it)
	}
	add(APIUnknown, "embeddings", `{"model":"e","input":["LONG"],"stream":true}`)
	return out
}

// seedFuzz adds the samples, but for the largest.
func seedFuzz(f *testing.F) {
	for _, s := range samples() {
		if len(s.body) < 64<<10 {
			f.Add(uint8(s.api), []byte(s.body))
		}
	}
}
