package modelserver

import (
	"context"
	"net/http"
	"strconv"
)

// sse writes server-sent events as uvicorn does: each in a write and an HTTP
// chunk of its own. In instant mode only the end is flushed.
type sse struct {
	w       http.ResponseWriter
	flush   func()
	ctx     context.Context
	fault   Fault
	events  int
	instant bool
	begun   bool // the head is out
	buf     []byte
}

// late tells whether the head of a stream waits for its first event: that of SGLang's
// chats and completions does, since 0.5.10 at the latest.
func (s *Server) late(route string) bool {
	return s.cfg.Engine == SGLang && (route == "chat" || route == "completions")
}

// stream sends the head, as vLLM does before the prompt is even looked at; if late, with
// the first event, as SGLang does.
func (s *Server) stream(c *call, fault Fault, late bool) *sse {
	e := &sse{w: c.w, ctx: c.ctx, fault: fault, instant: s.cfg.Instant, flush: func() {}}
	if f, ok := c.w.(http.Flusher); ok {
		e.flush = f.Flush
	}
	c.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	if !late {
		e.begin()
	}
	return e
}

// begin sends the head.
func (e *sse) begin() {
	e.begun = true
	e.w.WriteHeader(http.StatusOK)
	if !e.instant {
		e.flush()
	}
}

// refuseInside refuses in a stream that begins with 200, as SGLang does once it has
// handed a request to its scheduler.
func (s *Server) refuseInside(c *call, no *refusal) {
	b := []byte(`{"error": {"object": "error", "message": `)
	b = append(appendJSON(b, no.message), `, "type": `...)
	b = append(appendJSON(b, no.kind), `, "param": null, "code": `...)
	b = append(strconv.AppendInt(b, int64(no.status), 10), "}}"...)
	e := s.stream(c, Fault{}, true)
	if e.send("", b) == nil {
		_ = e.send("", []byte("[DONE]"))
	}
}

// send writes one event; name "" leaves the event line out. The error is the
// client's having left.
func (e *sse) send(name string, data ...[]byte) error {
	if !e.begun {
		e.begin()
	}
	e.buf = e.buf[:0]
	if name != "" {
		e.buf = append(e.buf, "event: "...)
		e.buf = append(e.buf, name...)
		e.buf = append(e.buf, '\n')
	}
	e.buf = append(e.buf, "data: "...)
	for _, d := range data {
		e.buf = append(e.buf, d...)
	}
	e.buf = append(e.buf, "\n\n"...)
	if _, err := e.w.Write(e.buf); err != nil {
		return err
	}
	if !e.instant {
		e.flush()
	}
	e.events++
	if e.fault != (Fault{}) {
		e.fault.wait(e.ctx, e.events)
		if e.fault.Die && e.fault.DieAfter == e.events {
			e.flush()
			e.fault.cut(e.events)
		}
	}
	return e.ctx.Err()
}
