package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/tautline/tautline/userspace/key"
)

// Refusal says why the agent answered a request itself.
type Refusal uint8

// The refusals.
const (
	RefusalNone           Refusal = iota
	RefusalPath                   // 404: not among allowed_paths
	RefusalLoop                   // 508: it has been here before
	RefusalUpgrade                // 501: WebSocket, CONNECT or HTTP/2 out of the blue
	RefusalTooLarge               // 413: over max_body_bytes
	RefusalBadBody                // 400: the request's framing is broken
	RefusalSlowBody               // 408: the body came too slowly
	RefusalMemory                 // 503: bodies in memory are at their limit
	RefusalNoModel                // 404: no backend serves the model
	RefusalModelUnlearned         // 503: whoever may serve the model has never said what it serves, and is not there
	RefusalNoBackend              // 503: no backend admits
	RefusalConnect                // 502: no connection to a backend
	RefusalProtocol               // 502: the backend broke off before its head, or sent none
	RefusalHeadTimeout            // 504: no head within timeouts.response_head
	RefusalDrain                  // 503: the drain's time was over before the head
	RefusalPinUnknown             // 404: a stored id that nobody here made
	RefusalPinUnavailable         // 503: the backend that holds the stored id does not admit
	RefusalPinRequestID           // 400: a client's request_id that looks like a tagged id
	RefusalPinEncoded             // 502: an answer with ids to tag came compressed, though nobody asked for that
	refusalCount
)

// kinds maps a Refusal to its status and to the type names of both error shapes.
var kinds = [refusalCount]struct {
	name      string
	status    int
	openai    string
	anthropic string
	code      string
	message   string
}{
	RefusalNone:           {name: "none"},
	RefusalPath:           {"path", 404, "invalid_request_error", "not_found_error", "not_found", "This path is not served here."},
	RefusalLoop:           {"loop", 508, "server_error", "api_error", "loop_detected", "The request came back to a gateway that had sent it on: their backends name each other."},
	RefusalUpgrade:        {"upgrade", 501, "invalid_request_error", "invalid_request_error", "not_implemented", "Protocol upgrades and tunnels are not supported."},
	RefusalTooLarge:       {"too_large", 413, "invalid_request_error", "request_too_large", "request_too_large", "The request body is too large."},
	RefusalBadBody:        {"bad_body", 400, "invalid_request_error", "invalid_request_error", "bad_request", "The request body could not be read."},
	RefusalSlowBody:       {"slow_body", 408, "invalid_request_error", "invalid_request_error", "request_timeout", "The request body came too slowly."},
	RefusalMemory:         {"memory", 503, "server_error", "overloaded_error", "overloaded", "Too many large requests are waiting."},
	RefusalNoModel:        {"no_model", 404, "invalid_request_error", "not_found_error", "model_not_found", "The model does not exist here."},
	RefusalModelUnlearned: {"model_unlearned", 503, "server_error", "overloaded_error", "model_unavailable", "No model server that is available serves this model; one that may serve it cannot be reached."},
	RefusalNoBackend:      {"no_backend", 503, "server_error", "overloaded_error", "no_backend", "No model server is available."},
	RefusalConnect:        {"connect", 502, "server_error", "api_error", "bad_gateway", "The model server could not be reached."},
	RefusalProtocol:       {"protocol", 502, "server_error", "api_error", "bad_gateway", "The model server broke off before it answered."},
	RefusalHeadTimeout:    {"head_timeout", 504, "server_error", "timeout_error", "gateway_timeout", "The model server did not answer in time."},
	RefusalDrain:          {"drain", 503, "server_error", "overloaded_error", "shutting_down", "The agent is shutting down."},
	RefusalPinUnknown:     {"pin_unknown", 404, "invalid_request_error", "not_found_error", "not_found", "No stored object with this id was found."},
	RefusalPinUnavailable: {"pin_unavailable", 503, "server_error", "overloaded_error", "no_backend", "The model server that holds this object is not available."},
	RefusalPinRequestID:   {"pin_request_id", 400, "invalid_request_error", "invalid_request_error", "invalid_request_id", "This request_id is reserved."},
	RefusalPinEncoded:     {"pin_encoded", 502, "server_error", "api_error", "bad_gateway", "The model server compressed an answer that has to be read."},
}

// String returns the label value.
func (r Refusal) String() string {
	if r < refusalCount {
		return kinds[r].name
	}
	return "invalid"
}

// Status returns the HTTP status of a refusal; 0 for RefusalNone.
func (r Refusal) Status() int { return kinds[r].status }

// retryAfter is what a 503 tells the client, in seconds.
const retryAfter = 5

// openAIError is the error body of OpenAI's APIs.
type openAIError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	} `json:"error"`
}

// anthropicError is the error body of the Messages API.
type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

// errorBody renders a refusal in the shape that the client of this API parses.
// The detail, if any, follows the fixed message.
func errorBody(r Refusal, anthropic bool, detail string) []byte {
	k := kinds[r]
	message := k.message
	if detail != "" {
		message += " " + detail
	}
	var v any
	if anthropic {
		e := anthropicError{Type: "error"}
		e.Error.Type, e.Error.Message = k.anthropic, message
		v = e
	} else {
		var e openAIError
		e.Error.Message, e.Error.Type, e.Error.Code = message, k.openai, k.code
		v = e
	}
	b, err := json.Marshal(v)
	if err != nil {
		return []byte(`{}`) // unreachable: the types above always marshal
	}
	return append(b, '\n')
}

// anthropicPath tells which error shape a path's clients expect:
// /v1/messages and what lies below it are Anthropic's.
func anthropicPath(api key.API, path string) bool {
	return api == key.APIMessages || path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/")
}

// writeRefusal answers with a refusal. The connection stays open unless the
// caller has set Connection: close.
func writeRefusal(w http.ResponseWriter, r *http.Request, api key.API, why Refusal, detail string) {
	body := errorBody(why, anthropicPath(api, r.URL.Path), detail)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	if why.Status() == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	w.WriteHeader(why.Status())
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that has gone is seen by the server
	}
}
