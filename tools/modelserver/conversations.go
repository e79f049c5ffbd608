package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// Conversations as an OpenAI-compatible store keeps them; engines have none.

func noConversation(id string) *refusal {
	no := refuse(http.StatusNotFound, "Conversation with id '%s' not found.", id)
	no.kind = "invalid_request_error"
	return no
}

// talkBody is what the conversation routes read.
type talkBody struct {
	Metadata json.RawMessage   `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

func (c *talk) object() map[string]any {
	m := c.metadata
	if len(m) == 0 {
		m = json.RawMessage(`{}`)
	}
	return map[string]any{"id": c.id, "object": "conversation", "created_at": c.created, "metadata": m}
}

// add appends items and returns them with their ids.
func (c *talk) add(s *Server, raw []json.RawMessage) []item {
	from := len(c.items)
	for _, r := range raw {
		c.items = append(c.items, withID(r, fmt.Sprintf("msg_%016x", s.serial.Add(1))))
	}
	return slices.Clone(c.items[from:])
}

func (s *Server) conversationRoutes(m *http.ServeMux) {
	m.HandleFunc("POST /v1/conversations", s.createConversation)
	m.HandleFunc("GET /v1/conversations/{id}", s.conversation)
	m.HandleFunc("POST /v1/conversations/{id}", s.conversation)
	m.HandleFunc("DELETE /v1/conversations/{id}", s.conversation)
	m.HandleFunc("GET /v1/conversations/{id}/items", s.conversationItems)
	m.HandleFunc("POST /v1/conversations/{id}/items", s.conversationItems)
	m.HandleFunc("GET /v1/conversations/{id}/items/{item}", s.conversationItem)
	m.HandleFunc("DELETE /v1/conversations/{id}/items/{item}", s.conversationItem)
}

func readTalk(w http.ResponseWriter, r *http.Request) (talkBody, bool) {
	var b talkBody
	body, err := readBody(w, r)
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, &b)
	}
	if err != nil {
		refuse(http.StatusBadRequest, "body: %v", err).openai(w)
		return b, false
	}
	return b, true
}

func (s *Server) createConversation(w http.ResponseWriter, r *http.Request) {
	s.count("conversations")
	b, ok := readTalk(w, r)
	if !ok {
		return
	}
	n := s.serial.Add(1)
	c := &talk{id: fmt.Sprintf("conv_%016x%016x", s.salt*n, n), created: s.created(), metadata: b.Metadata}
	c.add(s, b.Items)
	object := c.object()
	s.store.putTalk(c)
	reply(w, http.StatusOK, object)
}

func (s *Server) conversation(w http.ResponseWriter, r *http.Request) {
	s.count("conversations")
	id := r.PathValue("id")
	var b talkBody
	switch r.Method {
	case http.MethodDelete:
		if !s.store.deleteTalk(id) {
			noConversation(id).openai(w)
			return
		}
		reply(w, http.StatusOK, map[string]any{"id": id, "object": "conversation.deleted", "deleted": true})
		return
	case http.MethodPost:
		var ok bool
		if b, ok = readTalk(w, r); !ok {
			return
		}
	}
	var object map[string]any
	if !s.store.onTalk(id, func(c *talk) {
		if b.Metadata != nil {
			c.metadata = b.Metadata
		}
		object = c.object()
	}) {
		noConversation(id).openai(w)
		return
	}
	reply(w, http.StatusOK, object)
}

func (s *Server) conversationItems(w http.ResponseWriter, r *http.Request) {
	s.count("conversations")
	id := r.PathValue("id")
	if r.Method == http.MethodPost {
		b, ok := readTalk(w, r)
		if !ok {
			return
		}
		var added []item
		if !s.store.onTalk(id, func(c *talk) { added = c.add(s, b.Items) }) {
			noConversation(id).openai(w)
			return
		}
		r.URL.RawQuery = "order=asc&limit=100"
		replyList(w, r, added)
		return
	}
	list, ok := s.store.items(id)
	if !ok {
		noConversation(id).openai(w)
		return
	}
	replyList(w, r, list)
}

func (s *Server) conversationItem(w http.ResponseWriter, r *http.Request) {
	s.count("conversations")
	id, want := r.PathValue("id"), r.PathValue("item")
	var found json.RawMessage
	var object map[string]any
	if !s.store.onTalk(id, func(c *talk) {
		i := slices.IndexFunc(c.items, func(x item) bool { return x.id == want })
		if i < 0 {
			return
		}
		found = c.items[i].body
		if r.Method == http.MethodDelete {
			c.items = slices.Delete(c.items, i, i+1)
		}
		object = c.object()
	}) {
		noConversation(id).openai(w)
		return
	}
	switch {
	case found == nil:
		no := refuse(http.StatusNotFound, "Item with id '%s' not found in conversation.", want)
		no.kind = "invalid_request_error"
		no.openai(w)
	case r.Method == http.MethodDelete:
		reply(w, http.StatusOK, object)
	default:
		replyBytes(w, http.StatusOK, found)
	}
}
