package modelserver

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// chat answers POST /v1/chat/completions.
func (s *Server) chat(c *call) *refusal {
	var p rendering
	if !s.cfg.Instant {
		if len(c.req.Messages) == 0 {
			return refuse(http.StatusBadRequest, "messages: at least one message is required")
		}
		p.tools(c.req.Tools)
		for i := range c.req.Messages {
			p.turn(&c.req.Messages[i])
		}
		p.open("assistant")
	}
	g, no := s.begin(c, &p)
	if no != nil {
		return no
	}
	if c.req.Stream {
		s.chatStream(c, g)
		return nil
	}
	if s.whole(c.ctx, g) != nil {
		return nil // nobody is there to read an error
	}
	message := map[string]any{"role": "assistant", "content": nil, "refusal": nil}
	if g.answer.tool != "" {
		message["tool_calls"] = []any{map[string]any{
			"id": "call_" + g.id, "type": "function",
			"function": map[string]any{"name": g.answer.tool, "arguments": g.answer.text(g.answer.pieces)},
		}}
	} else {
		message["content"] = g.answer.text(g.answer.pieces)
	}
	c.replyWhole(g, map[string]any{
		"id": "chatcmpl-" + g.id, "object": "chat.completion", "created": g.created, "model": g.model,
		"choices": []any{map[string]any{
			"index": 0, "message": message, "logprobs": nil, "finish_reason": finish(&g.answer, "tool_calls"),
		}},
		"usage": g.usage(g.answer.pieces).openai(),
	})
	return nil
}

// finish is the OpenAI finish_reason.
func finish(a *answer, called string) string {
	switch {
	case !a.whole:
		return "length"
	case a.tool != "":
		return called
	}
	return "stop"
}

func (u usage) openai() map[string]any {
	return map[string]any{
		"prompt_tokens": u.prompt, "completion_tokens": u.answer, "total_tokens": u.prompt + u.answer,
		"prompt_tokens_details": map[string]any{"cached_tokens": u.cached},
	}
}

// chunks builds the frames of an OpenAI stream around what differs.
type chunks struct {
	head, tail []byte
}

func newChunks(id, object string, g *generation) chunks {
	b := []byte(`{"id":`)
	b = appendJSON(b, id)
	b = append(b, `,"object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, g.created, 10)
	b = append(b, `,"model":`...)
	b = appendJSON(b, g.model)
	b = append(b, `,"choices":[`...)
	return chunks{head: b, tail: []byte(`]}`)}
}

func (k *chunks) send(e *sse, choice []byte) error { return e.send("", k.head, choice, k.tail) }

// usage sends the last chunk of a stream that was asked for its usage.
func (k *chunks) usage(e *sse, u usage) error {
	b, err := json.Marshal(u.openai())
	if err != nil {
		return err
	}
	return e.send("", k.head, []byte(`],"usage":`), b, []byte(`}`))
}

func appendJSON(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // cannot be: strings always marshal
		return append(dst, `""`...)
	}
	return append(dst, b...)
}

func (s *Server) chatStream(c *call, g *generation) {
	e := s.stream(c, g.fault, s.late("chat"))
	k := newChunks("chatcmpl-"+g.id, "chat.completion.chunk", g)
	const open, end = `{"index":0,"delta":`, `,"logprobs":null,"finish_reason":null}`
	var choice []byte
	delta := func(parts ...string) error {
		choice = append(choice[:0], open...)
		for _, p := range parts {
			choice = append(choice, p...)
		}
		choice = append(choice, end...)
		return k.send(e, choice)
	}
	err := s.tokens(c.ctx, g, func(i int, piece string) error {
		if i == 0 { // vLLM sends the role with the first token, not before
			if err := delta(`{"role":"assistant","content":""}`); err != nil {
				return err
			}
			if g.answer.tool != "" {
				if err := delta(`{"tool_calls":[{"id":"call_`, jsonInner(g.id), `","type":"function","index":0,"function":{"name":`,
					string(appendJSON(nil, g.answer.tool)), `,"arguments":""}}]}`); err != nil {
					return err
				}
			}
		}
		if g.answer.tool != "" {
			return delta(`{"tool_calls":[{"index":0,"function":{"arguments":`, string(appendJSON(nil, piece)), `}}]}`)
		}
		return delta(`{"content":"`, piece, `"}`) // words need no escapes
	})
	if err != nil {
		return
	}
	if k.send(e, []byte(`{"index":0,"delta":{},"logprobs":null,"finish_reason":"`+finish(&g.answer, "tool_calls")+`","stop_reason":null}`)) != nil {
		return
	}
	if c.req.StreamOptions != nil && c.req.StreamOptions.IncludeUsage {
		if k.usage(e, g.usage(g.answer.pieces)) != nil {
			return
		}
	}
	_ = e.send("", []byte("[DONE]"))
}

// jsonInner is s as it stands between the quotes of a JSON string.
func jsonInner(s string) string {
	b := appendJSON(nil, s)
	return string(b[1 : len(b)-1])
}

// completions answers POST /v1/completions.
func (s *Server) completions(c *call) *refusal {
	var p rendering
	if !s.cfg.Instant {
		if err := p.completionPrompt(c.req.Prompt); err != nil {
			return refuse(http.StatusBadRequest, "prompt: %v", err)
		}
		c.req.Tools = nil
		if _, given := c.req.limit(); !given {
			limit := 16 // the API's default
			c.req.MaxTokens = &limit
		}
	}
	g, no := s.begin(c, &p)
	if no != nil {
		return no
	}
	if !c.req.Stream {
		if s.whole(c.ctx, g) != nil {
			return nil
		}
		c.replyWhole(g, map[string]any{
			"id": "cmpl-" + g.id, "object": "text_completion", "created": g.created, "model": g.model,
			"choices": []any{map[string]any{
				"index": 0, "text": g.answer.text(g.answer.pieces), "logprobs": nil, "finish_reason": finish(&g.answer, ""),
			}},
			"usage": g.usage(g.answer.pieces).openai(),
		})
		return nil
	}
	e := s.stream(c, g.fault, s.late("completions"))
	k := newChunks("cmpl-"+g.id, "text_completion", g)
	err := s.tokens(c.ctx, g, func(i int, piece string) error {
		last := `null}`
		if i == g.answer.pieces-1 {
			last = `"` + finish(&g.answer, "") + `"}`
		}
		return k.send(e, []byte(`{"index":0,"text":"`+piece+`","logprobs":null,"finish_reason":`+last))
	})
	if err != nil {
		return nil
	}
	if c.req.StreamOptions != nil && c.req.StreamOptions.IncludeUsage {
		if k.usage(e, g.usage(g.answer.pieces)) != nil {
			return nil
		}
	}
	_ = e.send("", []byte("[DONE]"))
	return nil
}
