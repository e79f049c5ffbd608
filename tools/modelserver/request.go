package modelserver

import (
	"bytes"
	"encoding/json"
	"strings"
)

// request is what the stand-in reads of a body, of whichever API. Members it
// does not know are ignored, as engines do.
type request struct {
	Model         string          `json:"model"`
	Stream        bool            `json:"stream"`
	StreamOptions *streamOptions  `json:"stream_options"`
	Tools         json.RawMessage `json:"tools"`
	ToolChoice    json.RawMessage `json:"tool_choice"`
	CacheSalt     string          `json:"cache_salt"`

	MaxTokens           *int `json:"max_tokens"`
	MaxCompletionTokens *int `json:"max_completion_tokens"`
	MaxOutputTokens     *int `json:"max_output_tokens"`
	MinTokens           int  `json:"min_tokens"`
	IgnoreEOS           bool `json:"ignore_eos"` // the answer is as long as the limit allows

	Messages []turn          `json:"messages"` // chat, messages
	System   json.RawMessage `json:"system"`   // messages
	Prompt   json.RawMessage `json:"prompt"`   // completions
	Input    json.RawMessage `json:"input"`    // responses, embeddings

	Instructions       string          `json:"instructions"`
	PreviousResponseID string          `json:"previous_response_id"`
	Conversation       json.RawMessage `json:"conversation"`
	RequestID          string          `json:"request_id"`
	Store              *bool           `json:"store"`
	Background         bool            `json:"background"`
	Metadata           json.RawMessage `json:"metadata"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// turn is a chat message, an Anthropic message or a Responses item.
type turn struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		Function struct{ Name, Arguments string } `json:"function"`
	} `json:"tool_calls"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	ID        string          `json:"id"`
}

type part struct {
	Type    string          `json:"type"`
	Text    *string         `json:"text"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Content json.RawMessage `json:"content"`
}

// limit is the longest answer asked for, by the newest name that is given.
func (r *request) limit() (n int, given bool) {
	for _, p := range []*int{r.MaxCompletionTokens, r.MaxOutputTokens, r.MaxTokens} {
		if p != nil {
			return *p, true
		}
	}
	return 0, false
}

// rendering is a prompt as the engine's chat template would lay it out.
type rendering struct {
	bytes.Buffer
	last string // text of the last user turn
}

func (w *rendering) open(role string) {
	w.WriteString("<|")
	w.WriteString(role)
	w.WriteString("|>\n")
}

func (w *rendering) close() { w.WriteString("<|end|>\n") }

func (w *rendering) tools(raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" || string(raw) == "[]" {
		return
	}
	w.open("tools")
	if json.Compact(&w.Buffer, raw) != nil {
		w.Write(raw)
	}
	w.close()
}

func (w *rendering) turn(t *turn) {
	role := t.Role
	if role == "" {
		role = t.Type
	}
	w.open(role)
	from := w.Len()
	w.content(t.Content)
	for _, c := range t.ToolCalls {
		w.call(c.Function.Name, c.Function.Arguments)
	}
	if t.Type == "function_call" {
		w.call(t.Name, t.Arguments)
	}
	w.content(t.Output)
	if role == "user" {
		w.last = string(w.Bytes()[from:])
	}
	w.close()
}

func (w *rendering) call(name, arguments string) {
	w.WriteString("<call>")
	w.WriteString(name)
	w.WriteByte(' ')
	w.WriteString(arguments)
}

// content renders a string, or parts. A part that is no text stands for a
// fixed number of tokens and differs by its bytes.
func (w *rendering) content(raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	if s, ok := text(raw); ok {
		w.WriteString(s)
		return
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		w.media(raw)
		return
	}
	for _, raw := range parts {
		if s, ok := text(raw); ok {
			w.WriteString(s)
			continue
		}
		var p part
		if json.Unmarshal(raw, &p) != nil {
			w.media(raw)
			continue
		}
		switch {
		case p.Text != nil:
			w.WriteString(*p.Text)
		case p.Type == "tool_use":
			w.call(p.Name, string(p.Input))
		case p.Type == "tool_result":
			w.content(p.Content)
		default:
			w.media(raw)
		}
	}
}

// media stands for what is not text: 64 tokens that follow from its bytes.
func (w *rendering) media(raw []byte) {
	h := hash(0).mix(raw)
	for range 64 {
		h = h.mix(nil)
		w.WriteString(word(h))
	}
}

func text(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// items reads a Responses input: a string is one user message.
func items(raw json.RawMessage) ([]turn, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if _, ok := text(raw); ok {
		return []turn{{Role: "user", Content: raw}}, nil
	}
	var list []turn
	err := json.Unmarshal(raw, &list)
	return list, err
}

// completionPrompt renders what Completions takes: a string, strings, token
// ids, or arrays of token ids, several prompts as if they were one.
func (w *rendering) completionPrompt(raw json.RawMessage) error {
	if s, ok := text(raw); ok {
		w.WriteString(s)
		w.last = s
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	for _, e := range list {
		if len(e) > 0 && (e[0] == '[' || e[0] == '"') {
			if err := w.completionPrompt(e); err != nil {
				return err
			}
			continue
		}
		var id uint32
		if err := json.Unmarshal(e, &id); err != nil {
			return err
		}
		w.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)}) // one token
	}
	return nil
}

// wantsTool returns the tool the answer must call, if any: one named or
// required by tool_choice, or one the last user turn asks to use.
func (r *request) wantsTool(last string) (tool, bool) {
	list := readTools(r.Tools)
	if len(list) == 0 {
		return tool{}, false
	}
	var choice struct {
		Type     string `json:"type"`
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if s, ok := text(r.ToolChoice); ok {
		choice.Type = s
	} else if len(r.ToolChoice) > 0 {
		_ = json.Unmarshal(r.ToolChoice, &choice) // another shape: as if not given
	}
	if choice.Name == "" {
		choice.Name = choice.Function.Name
	}
	switch {
	case choice.Type == "none":
		return tool{}, false
	case choice.Name != "":
		for _, t := range list {
			if t.name == choice.Name {
				return t, true
			}
		}
		return tool{}, false
	case choice.Type == "required" || choice.Type == "any":
		return list[0], true
	}
	for _, t := range list {
		if strings.Contains(last, "use the tool "+t.name) {
			return t, true
		}
	}
	return list[0], strings.Contains(last, "use a tool")
}

type tool struct {
	name   string
	schema json.RawMessage
}

// readTools reads the three shapes: chat, responses, messages.
func readTools(raw json.RawMessage) []tool {
	var list []struct {
		Name        string          `json:"name"`
		Parameters  json.RawMessage `json:"parameters"`
		InputSchema json.RawMessage `json:"input_schema"`
		Function    struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var tools []tool
	for _, t := range list {
		switch {
		case t.Function.Name != "":
			tools = append(tools, tool{t.Function.Name, t.Function.Parameters})
		case t.InputSchema != nil:
			tools = append(tools, tool{t.Name, t.InputSchema})
		case t.Name != "":
			tools = append(tools, tool{t.Name, t.Parameters})
		}
	}
	return tools
}
