package modelserver

import (
	"context"
	"net/http"
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
	buf     []byte
}

// stream sends the head, as vLLM does before the prompt is even looked at.
func (s *Server) stream(c *call, fault Fault) *sse {
	e := &sse{w: c.w, ctx: c.ctx, fault: fault, instant: s.cfg.Instant, flush: func() {}}
	if f, ok := c.w.(http.Flusher); ok {
		e.flush = f.Flush
	}
	c.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	c.w.WriteHeader(http.StatusOK)
	if !e.instant {
		e.flush()
	}
	return e
}

// send writes one event; name "" leaves the event line out. The error is the
// client's having left.
func (e *sse) send(name string, data ...[]byte) error {
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
