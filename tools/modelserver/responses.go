package modelserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// record is a Responses answer: running, or stored.
type record struct {
	id       string
	request  map[string]any // the members of the answer that echo the request
	input    []json.RawMessage
	prompt   string // rendered, without the opening of the answer's turn
	g        *generation
	previous string
	talk     string // conversation
	done     chan struct{}
	cancel   func() // of a background run; nil otherwise

	state    string // guarded by the store's lock
	produced int    // tokens, once it has ended
}

// The states of a response that the stand-in knows.
const (
	stateQueued     = "queued"
	stateInProgress = "in_progress"
	stateCompleted  = "completed"
	stateIncomplete = "incomplete"
	stateCancelled  = "cancelled"
)

// responses answers POST /v1/responses.
func (s *Server) responses(c *call) *refusal {
	x, no := s.newRecord(c)
	if no != nil {
		return no
	}
	stored := s.cfg.StoredMax > 0 && (c.req.Store == nil || *c.req.Store)
	if c.req.Background {
		if !stored {
			return refuse(http.StatusBadRequest, "background requires that responses are stored")
		}
		s.background(x)
		if !c.req.Stream {
			reply(c.w, http.StatusOK, x.object(stateQueued, 0))
			return nil
		}
		s.replay(c, x, -1)
		return nil
	}
	if c.req.Stream {
		e := s.stream(c, x.g.fault, false)
		s.submit(x.g)
		defer s.leave(x.g)
		if x.emit(c, e, -1) != nil {
			return nil
		}
		s.keep(x, stored)
		return nil
	}
	if s.whole(c.ctx, x.g) != nil {
		return nil
	}
	s.keep(x, stored)
	c.replyWhole(x.g, x.object(x.ended(), x.g.answer.pieces))
	return nil
}

// newRecord plans the answer to a Responses request, after what it names.
func (s *Server) newRecord(c *call) (*record, *refusal) {
	r := &c.req
	x := &record{previous: r.PreviousResponseID, done: make(chan struct{}), state: stateInProgress}
	var p rendering
	if !s.cfg.Instant {
		turns, err := items(r.Input)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "input: %v", err)
		}
		if x.input, err = rawItems(r.Input); err != nil {
			return nil, refuse(http.StatusBadRequest, "input: %v", err)
		}
		p.tools(r.Tools)
		if r.Instructions != "" {
			p.turn(&turn{Role: "system", Content: appendJSON(nil, r.Instructions)})
		}
		if x.previous != "" {
			before, no := s.before(x.previous)
			if no != nil {
				return nil, no
			}
			p.WriteString(before)
		}
		if x.talk, err = conversationID(r.Conversation); err != nil {
			return nil, refuse(http.StatusBadRequest, "conversation: %v", err)
		}
		if x.talk != "" {
			list, ok := s.store.items(x.talk)
			if !ok {
				return nil, noConversation(x.talk)
			}
			for _, raw := range list {
				var t turn
				if json.Unmarshal(raw.body, &t) == nil {
					p.turn(&t)
				}
			}
		}
		for i := range turns {
			p.turn(&turns[i])
		}
		x.prompt = p.String()
		p.open("assistant")
	}
	g, no := s.begin(c, &p)
	if no != nil {
		return nil, no
	}
	x.g = g
	if x.id = r.RequestID; x.id == "" {
		x.id = "resp_" + g.id
	}
	x.request = echo(r, x)
	return x, nil
}

// inputTokens answers POST /v1/responses/input_tokens.
func (s *Server) inputTokens(c *call) *refusal {
	n := len(c.body) / bytesPerToken
	if !s.cfg.Instant {
		x, no := s.newRecord(c)
		if no != nil {
			return no
		}
		n = x.g.prompt
	}
	reply(c.w, http.StatusOK, map[string]any{"object": "response.input_tokens", "input_tokens": n})
	return nil
}

// before is the rendered prompt and answer of a stored response.
func (s *Server) before(id string) (string, *refusal) {
	if s.cfg.Engine == SGLang && !strings.HasPrefix(id, "resp_") {
		return "", refuse(http.StatusBadRequest, "Invalid 'previous_response_id': '%s'. Expected an ID that begins with 'resp'.", id)
	}
	x, ok := s.store.response(id)
	if !ok {
		return "", noResponse(id)
	}
	var p rendering
	p.WriteString(x.prompt)
	p.open("assistant")
	p.WriteString(x.g.text)
	p.close()
	return p.String(), nil
}

func noResponse(id string) *refusal {
	no := refuse(http.StatusNotFound, "Response with id '%s' not found.", id)
	no.kind = "invalid_request_error"
	no.param = "response_id"
	return no
}

// rawItems is the input as stored items.
func rawItems(raw json.RawMessage) ([]json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if _, ok := text(raw); ok {
		return []json.RawMessage{json.RawMessage(`{"type":"message","role":"user","content":[{"type":"input_text","text":` + string(raw) + `}]}`)}, nil
	}
	var list []json.RawMessage
	err := json.Unmarshal(raw, &list)
	return list, err
}

var errNoID = errors.New("want an id, or an object with one")

// conversationID reads the two forms of the member.
func conversationID(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if s, ok := text(raw); ok {
		return s, nil
	}
	var c struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(raw, &c); err != nil || c.ID == "" {
		return "", errNoID
	}
	return c.ID, nil
}

// echo is what an answer repeats of its request.
func echo(r *request, x *record) map[string]any {
	m := map[string]any{
		"id": x.id, "object": "response", "created_at": x.g.created, "model": x.g.model, "error": nil,
		"incomplete_details": nil, "instructions": nil, "metadata": map[string]any{}, "parallel_tool_calls": true,
		"temperature": 1.0, "tool_choice": "auto", "tools": []any{}, "top_p": 1.0, "background": r.Background,
		"max_output_tokens": r.MaxOutputTokens, "previous_response_id": nil, "service_tier": "auto",
		"text": map[string]any{"format": map[string]any{"type": "text"}}, "truncation": "disabled", "usage": nil, "user": nil,
	}
	if r.Instructions != "" {
		m["instructions"] = r.Instructions
	}
	for name, raw := range map[string]json.RawMessage{"metadata": r.Metadata, "tools": r.Tools, "tool_choice": r.ToolChoice} {
		if len(raw) > 0 && string(raw) != "null" {
			m[name] = raw
		}
	}
	if x.previous != "" {
		m["previous_response_id"] = x.previous
	}
	if x.talk != "" {
		m["conversation"] = map[string]any{"id": x.talk}
	}
	return m
}

// ended is the state in which an answer that is complete ends.
func (x *record) ended() string {
	if x.g.answer.whole {
		return stateCompleted
	}
	return stateIncomplete
}

// object is the whole response in a state, with the first n tokens.
func (x *record) object(state string, n int) map[string]any {
	m := make(map[string]any, len(x.request)+4)
	for k, v := range x.request {
		m[k] = v
	}
	m["status"], m["output"] = state, []any{}
	if state == stateIncomplete {
		m["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	if state == stateCompleted || state == stateIncomplete {
		m["output"] = []any{x.item(state, x.g.answer.text(n))}
		u := x.g.usage(n)
		m["usage"] = map[string]any{
			"input_tokens": u.prompt, "input_tokens_details": map[string]any{"cached_tokens": u.cached},
			"output_tokens": u.answer, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
			"total_tokens": u.prompt + u.answer,
		}
	}
	return m
}

// item is the one output item: a message or a function call.
func (x *record) item(state, all string) map[string]any {
	if x.g.answer.tool != "" {
		return map[string]any{
			"type": "function_call", "id": "fc_" + x.g.id, "call_id": "call_" + x.g.id, "status": state,
			"name": x.g.answer.tool, "arguments": all,
		}
	}
	content := []any{}
	if state != stateInProgress {
		content = append(content, textPart(all))
	}
	return map[string]any{"type": "message", "id": "msg_" + x.g.id, "status": state, "role": "assistant", "content": content}
}

func textPart(all string) map[string]any {
	return map[string]any{"type": "output_text", "text": all, "annotations": []any{}, "logprobs": []any{}}
}

// emit sends the response's events with a sequence number above after. The
// first two come before the prompt is looked at, as with vLLM.
func (x *record) emit(c *call, e *sse, after int) error {
	seq := 0
	send := func(name string, v map[string]any) error {
		n := seq
		seq++
		if n <= after {
			return nil
		}
		v["type"], v["sequence_number"] = name, n
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return e.send(name, b)
	}
	for _, name := range []string{"response.created", "response.in_progress"} {
		if err := send(name, map[string]any{"response": x.object(stateInProgress, 0)}); err != nil {
			return err
		}
	}
	a := &x.g.answer
	item := "msg_" + x.g.id
	delta := "response.output_text.delta"
	if a.tool != "" {
		item, delta = "fc_"+x.g.id, "response.function_call_arguments.delta"
	}
	at := func(v map[string]any) map[string]any {
		v["item_id"], v["output_index"] = item, 0
		if a.tool == "" {
			v["content_index"] = 0
		}
		return v
	}
	itemJSON := string(appendJSON(nil, item))
	err := x.g.follow(c.ctx, func(i int, piece string) error {
		if i == 0 {
			if err := send("response.output_item.added", map[string]any{"output_index": 0, "item": x.item(stateInProgress, "")}); err != nil {
				return err
			}
			if a.tool == "" {
				if err := send("response.content_part.added", at(map[string]any{"part": textPart("")})); err != nil {
					return err
				}
			}
		}
		n := seq
		seq++
		if n <= after {
			return nil
		}
		rest := `,"output_index":0,"sequence_number":` + strconv.Itoa(n) + `,"type":"` + delta + `"`
		if a.tool == "" {
			rest += `,"content_index":0,"logprobs":[]`
		}
		return e.send(delta, []byte(`{"delta":`), appendJSON(nil, piece), []byte(`,"item_id":`+itemJSON+rest+`}`))
	})
	if err != nil {
		return err
	}
	all, state := a.text(a.pieces), x.ended()
	var last []struct {
		name string
		v    map[string]any
	}
	add := func(name string, v map[string]any) {
		last = append(last, struct {
			name string
			v    map[string]any
		}{name, v})
	}
	if a.tool != "" {
		add("response.function_call_arguments.done", at(map[string]any{"name": a.tool, "arguments": all}))
	} else {
		add("response.output_text.done", at(map[string]any{"text": all, "logprobs": []any{}}))
		add("response.content_part.done", at(map[string]any{"part": textPart(all)}))
	}
	add("response.output_item.done", map[string]any{"output_index": 0, "item": x.item(state, all)})
	add("response."+state, map[string]any{"response": x.object(state, a.pieces)})
	for _, m := range last {
		if err := send(m.name, m.v); err != nil {
			return err
		}
	}
	return nil
}
