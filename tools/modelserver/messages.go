package modelserver

import (
	"context"
	"encoding/json"
	"net/http"
)

// renderMessages lays an Anthropic request out as chat would lay out its own.
func (c *call) renderMessages(p *rendering) *refusal {
	if len(c.req.Messages) == 0 {
		return refuse(http.StatusBadRequest, "messages: at least one message is required")
	}
	p.tools(c.req.Tools)
	if len(c.req.System) > 0 && string(c.req.System) != "null" {
		p.turn(&turn{Role: "system", Content: c.req.System})
	}
	for i := range c.req.Messages {
		p.turn(&c.req.Messages[i])
	}
	p.open("assistant")
	return nil
}

// messages answers POST /v1/messages.
func (s *Server) messages(c *call) *refusal {
	var p rendering
	if c.req.MaxTokens == nil {
		return refuse(http.StatusBadRequest, "max_tokens: field required")
	}
	if !s.cfg.Instant {
		if no := c.renderMessages(&p); no != nil {
			return no
		}
	}
	g, no := s.begin(c, &p)
	if no != nil {
		return no
	}
	if c.req.Stream {
		s.messagesStream(c, g)
		return nil
	}
	if s.whole(c.ctx, g) != nil {
		return nil
	}
	var block map[string]any
	if all := g.answer.text(g.answer.pieces); g.answer.tool != "" {
		block = map[string]any{"type": "tool_use", "id": "toolu_" + g.id, "name": g.answer.tool, "input": json.RawMessage(all)}
		if !json.Valid([]byte(all)) {
			block["input"] = map[string]any{} // cut off by the limit
		}
	} else {
		block = map[string]any{"type": "text", "text": all}
	}
	c.replyWhole(g, g.message([]any{block}, g.stopReason(), g.usage(g.answer.pieces).anthropic()))
	return nil
}

func (g *generation) message(content []any, stop any, u map[string]any) map[string]any {
	return map[string]any{
		"id": "msg_" + g.id, "type": "message", "role": "assistant", "model": g.model,
		"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": u,
	}
}

// anthropic counts as vLLM does: all prompt tokens are input tokens.
func (u usage) anthropic() map[string]any {
	return map[string]any{"input_tokens": u.prompt, "output_tokens": u.answer}
}

func (g *generation) stopReason() string {
	switch {
	case !g.answer.whole:
		return "max_tokens"
	case g.answer.tool != "":
		return "tool_use"
	}
	return "end_turn"
}

// messagesStream sends vLLM's order of events: message_start comes with the
// first token. Pings fill the wait where the Config says so, as Anthropic's
// own service does.
func (s *Server) messagesStream(c *call, g *generation) {
	e := s.stream(c, g.fault, false)
	send := func(name string, v map[string]any) error {
		v["type"] = name
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return e.send(name, b)
	}
	s.submit(g)
	defer s.leave(g)
	if s.cfg.PingInterval > 0 {
		if s.ping(c.ctx, g, func() error { return send("ping", map[string]any{}) }) != nil {
			return
		}
	}
	const head, text, args, tail = `{"type":"content_block_delta","index":0,"delta":`, `{"type":"text_delta","text":"`, `{"type":"input_json_delta","partial_json":`, `}}`
	err := g.follow(c.ctx, func(i int, piece string) error {
		if i == 0 {
			if err := send("message_start", map[string]any{"message": g.message([]any{}, nil, g.usage(0).anthropic())}); err != nil {
				return err
			}
			block := map[string]any{"type": "text", "text": ""}
			if g.answer.tool != "" {
				block = map[string]any{"type": "tool_use", "id": "toolu_" + g.id, "name": g.answer.tool, "input": map[string]any{}}
			}
			if err := send("content_block_start", map[string]any{"index": 0, "content_block": block}); err != nil {
				return err
			}
		}
		if g.answer.tool != "" {
			return e.send("content_block_delta", []byte(head+args), appendJSON(nil, piece), []byte(tail))
		}
		return e.send("content_block_delta", []byte(head+text), []byte(piece), []byte(`"`+tail))
	})
	if err != nil {
		return
	}
	if send("content_block_stop", map[string]any{"index": 0}) != nil {
		return
	}
	if send("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": g.stopReason(), "stop_sequence": nil},
		"usage": g.usage(g.answer.pieces).anthropic(),
	}) != nil {
		return
	}
	_ = send("message_stop", map[string]any{})
}

// ping calls send at each interval until the first token is there.
func (s *Server) ping(ctx context.Context, g *generation, send func() error) error {
	for {
		wait, cancel := context.WithTimeout(ctx, s.cfg.PingInterval)
		_, err := g.wait(wait, 0)
		cancel()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if err := send(); err != nil {
			return err
		}
	}
}

// countTokens answers POST /v1/messages/count_tokens.
func (s *Server) countTokens(c *call) *refusal {
	var p rendering
	if s.cfg.Instant {
		reply(c.w, http.StatusOK, map[string]int{"input_tokens": len(c.body) / bytesPerToken})
		return nil
	}
	if no := c.renderMessages(&p); no != nil {
		return no
	}
	reply(c.w, http.StatusOK, map[string]int{"input_tokens": (p.Len() + bytesPerToken - 1) / bytesPerToken})
	return nil
}

// embeddings answers POST /v1/embeddings with eight numbers that follow from
// the input; the engine has no part in it.
func (s *Server) embeddings(c *call) *refusal {
	input := []json.RawMessage{c.req.Input}
	if len(c.req.Input) > 0 && c.req.Input[0] == '[' {
		if err := json.Unmarshal(c.req.Input, &input); err != nil {
			return refuse(http.StatusBadRequest, "input: %v", err)
		}
	}
	type item struct {
		Object    string    `json:"object"`
		Index     int       `json:"index"`
		Embedding []float64 `json:"embedding"`
	}
	tokens, data := 0, make([]item, 0, len(input))
	for i, raw := range input {
		if len(raw) == 0 {
			return refuse(http.StatusBadRequest, "input: field required")
		}
		h := hash(0)
		vector := make([]float64, 8)
		for k := range vector {
			h = h.mix(raw)
			vector[k] = float64(int64(h)>>32) / (1 << 31)
		}
		data = append(data, item{"embedding", i, vector})
		tokens += (len(raw) + bytesPerToken - 1) / bytesPerToken
	}
	model := c.req.Model
	if model == "" {
		model = s.cfg.Models[0]
	}
	reply(c.w, http.StatusOK, map[string]any{
		"object": "list", "model": model, "data": data,
		"usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens},
	})
	return nil
}
