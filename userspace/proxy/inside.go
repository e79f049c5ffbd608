package proxy

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tautline/tautline/userspace/key"
)

// insideTime is how long the first event is waited for of an answer whose head came
// alone, where the engine may refuse in it. SGLang writes the two one after the other.
const insideTime = 5 * time.Millisecond

// inside looks for a refusal in the first event of a stream that began with 200, and
// returns the status that it gives; 0 where there is none. Nothing of the answer is
// taken, so it can be passed on as it is.
func (a *attempt) inside() int {
	x, resp := a.x, a.resp
	body, ok := resp.Body.(interface {
		Peek(d time.Duration, more func(begin []byte) bool)
	})
	switch {
	case !ok || resp.StatusCode != http.StatusOK || !x.prompt.Stream,
		x.api != key.APIChat && x.api != key.APICompletions,
		!eventStream(resp.Header) || encoded(resp.Header),
		!x.p.refusesInside(a.backend.slot) || x.p.backend(a.backend.slot) != a.backend:
		return 0
	}
	code := 0
	body.Peek(insideTime, func(begin []byte) (more bool) {
		code, more = refusalEvent(begin)
		return more
	})
	return code
}

// errorEvent is how an event begins that holds an error and nothing else.
const errorEvent = `data: {"error":`

// refusalEvent reads the beginning of a stream: the code of an error with which a
// server refuses, 503 or 429; 0 for anything else. more: that cannot be told yet.
func refusalEvent(begin []byte) (code int, more bool) {
	if n := min(len(begin), len(errorEvent)); string(begin[:n]) != errorEvent[:n] {
		return 0, false
	}
	line, _, whole := bytes.Cut(begin, []byte("\n"))
	if !whole {
		return 0, true
	}
	var v struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(line[len("data: "):], &v) != nil {
		return 0, false
	}
	switch v.Error.Code {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return v.Error.Code, false
	}
	return 0, false
}
