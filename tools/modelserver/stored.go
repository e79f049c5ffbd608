package modelserver

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
)

// keep stores a response that has ended, and what it adds to a conversation.
func (s *Server) keep(x *record, stored bool) {
	s.store.end(x, x.ended(), x.g.answer.pieces)
	close(x.done)
	if stored {
		s.store.put(x)
	}
	if x.talk != "" {
		output, err := json.Marshal(x.item(x.ended(), x.g.answer.text(x.g.answer.pieces)))
		if err != nil {
			return
		}
		s.store.onTalk(x.talk, func(c *talk) { c.add(s, append(append([]json.RawMessage{}, x.input...), output)) })
	}
}

// background runs a response that no connection waits for.
func (s *Server) background(x *record) {
	ctx, cancel := context.WithCancel(s.ctx)
	x.state, x.cancel = stateQueued, cancel
	s.store.put(x)
	s.wg.Go(func() {
		defer cancel()
		if s.whole(ctx, x.g) != nil {
			s.store.end(x, stateCancelled, 0)
			close(x.done)
			return
		}
		s.keep(x, true)
	})
}

// responseByID serves GET, DELETE and POST .../cancel of a stored response.
func (s *Server) responseByID(w http.ResponseWriter, r *http.Request) {
	s.count("responses")
	id := r.PathValue("id")
	x, ok := s.store.response(id)
	if !ok {
		noResponse(id).openai(w)
		return
	}
	switch r.Method {
	case http.MethodDelete:
		s.store.deleteResponse(id)
		reply(w, http.StatusOK, map[string]any{"id": id, "object": "response", "deleted": true})
	case http.MethodPost: // cancel
		if x.cancel == nil {
			refuse(http.StatusBadRequest, "Cannot cancel a synchronous response.").openai(w)
			return
		}
		s.store.end(x, stateCancelled, 0)
		x.cancel()
		state, n := s.store.state(x)
		reply(w, http.StatusOK, x.object(state, n))
	default:
		if r.URL.Query().Get("stream") != "true" {
			state, n := s.store.state(x)
			reply(w, http.StatusOK, x.object(state, n))
			return
		}
		after := -1
		if v := r.URL.Query().Get("starting_after"); v != "" {
			var err error
			if after, err = strconv.Atoi(v); err != nil {
				refuse(http.StatusBadRequest, "starting_after: want a number, got %q", v).openai(w)
				return
			}
		}
		s.replay(&call{w: w, r: r, ctx: r.Context()}, x, after)
	}
}

// replay streams the events of a response once it has ended.
func (s *Server) replay(c *call, x *record, after int) {
	e := s.stream(c, Fault{}, false)
	select {
	case <-x.done:
	case <-c.ctx.Done():
		return
	case <-s.ctx.Done():
		return
	}
	if state, _ := s.store.state(x); state == stateCancelled {
		b, err := json.Marshal(map[string]any{"type": "response.failed", "sequence_number": after + 1, "response": x.object(stateCancelled, 0)})
		if err == nil {
			_ = e.send("response.failed", b)
		}
		return
	}
	_ = x.emit(c, e, after)
}

// inputItems serves GET /v1/responses/{id}/input_items.
func (s *Server) inputItems(w http.ResponseWriter, r *http.Request) {
	s.count("responses")
	id := r.PathValue("id")
	x, ok := s.store.response(id)
	if !ok {
		noResponse(id).openai(w)
		return
	}
	list := make([]item, 0, len(x.input))
	for i, raw := range x.input {
		list = append(list, withID(raw, "msg_"+x.g.id+"_"+strconv.Itoa(i)))
	}
	replyList(w, r, list)
}

// withID gives an item an id, unless it brings one.
func withID(raw json.RawMessage, id string) item {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return item{id: id, body: raw}
	}
	var own string
	if json.Unmarshal(m["id"], &own) == nil && own != "" {
		return item{id: own, body: raw}
	}
	m["id"] = appendJSON(nil, id)
	if m["type"] == nil {
		m["type"] = json.RawMessage(`"message"`)
	}
	if m["status"] == nil {
		m["status"] = json.RawMessage(`"completed"`)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return item{id: id, body: raw}
	}
	return item{id: id, body: b}
}

// replyList writes a page of items: newest first unless order=asc, from after
// on, at most limit.
func replyList(w http.ResponseWriter, r *http.Request, list []item) {
	q := r.URL.Query()
	page := make([]item, 0, len(list))
	for i := range list {
		k := i
		if q.Get("order") != "asc" {
			k = len(list) - 1 - i
		}
		page = append(page, list[k])
	}
	if after := q.Get("after"); after != "" {
		for i, x := range page {
			if x.id == after {
				page = page[i+1:]
				break
			}
		}
	}
	limit := 20
	if n, err := strconv.Atoi(q.Get("limit")); err == nil && n > 0 {
		limit = min(n, 100)
	}
	more := len(page) > limit
	page = page[:min(limit, len(page))]
	data := make([]json.RawMessage, 0, len(page))
	for _, x := range page {
		data = append(data, x.body)
	}
	var first, last any
	if len(page) > 0 {
		first, last = page[0].id, page[len(page)-1].id
	}
	reply(w, http.StatusOK, map[string]any{"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": more})
}
