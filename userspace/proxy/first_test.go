package proxy

import (
	"strings"
	"testing"
)

// TestFirstToken feeds each stream split at every place: the first token must be
// seen when its bytes are there, whatever the split, and not before.
func TestFirstToken(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, tc := range []struct {
		name   string
		sign   tokenSign
		before string // no token yet
		token  string // with this there is
	}{
		{"any bytes", signBytes, "", "a"},
		{"not streamed", signNone, "data: x\n\n", ""},
		{"data", signData, "", "data: x"},
		{"data without a space (E5)", signData, "", "data:{}"},
		{"comment before data", signData, ": keep-alive\n\n:\n\n", "data: x"},
		{"CRLF", signData, ": hi\r\n\r\n", "data: x"},
		{"CR alone", signData, ": hi\r\r", "data: x"},
		{"ping before data", signData, "event: ping\ndata: {\"type\":\"ping\"}\n\n", "event: message_start\ndata: {}"},
		{"delta", signDelta, "event: response.created\ndata: {\"type\":\"response.created\"}\n\nevent: response.in_progress\ndata: {}\n\n", "event: response.output_text.delta\n"},
		{"delta with CRLF", signDelta, "event: response.created\r\ndata: {}\r\n\r\n", "event:response.reasoning_text.delta\r\n"},
		{"delta in a created event's text", signDelta, "event: response.created\ndata: {\"instructions\":\"x.delta\",\"type\":\"response.y.delta\"}\n\n", "event: response.output_text.delta\n"},
		{"long created event", signDelta, "event: response.created\ndata: " + long + "\n\n", "event: response.output_text.delta\n"},
		{"unnamed events", signDelta, "data: {\"type\":\"response.created\"}\n\n", "data: {\"type\": \"response.output_text.delta\"}\n"},
		{"unnamed long event", signDelta, "data: {\"type\":\"response.created\",\"x\":\"" + long + "\"}\n\n", "data: {\"type\":\"response.output_text.delta\",\"delta\":\"" + long},
		{"failed without a delta", signDelta, "event: response.created\ndata: {}\n\n", "event: response.failed\n"},
		{"error event", signDelta, "event: response.created\ndata: {}\n\n", "event: error\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := tc.before + tc.token
			for cut := 0; cut <= len(all); cut++ {
				f := firstToken{sign: tc.sign}
				f.see([]byte(all[:cut]))
				if cut <= len(tc.before) && f.found {
					t.Fatalf("seen too early, in %q", all[:cut])
				}
				f.see([]byte(all[cut:]))
				if f.found != (tc.token != "") {
					t.Fatalf("split at %d: found %v", cut, f.found)
				}
			}
			f := firstToken{sign: tc.sign}
			for i := range all {
				if f.see([]byte{all[i]}) && i < len(tc.before) {
					t.Fatalf("byte by byte: seen too early, at %d", i)
				}
			}
			if f.found != (tc.token != "") {
				t.Errorf("byte by byte: found %v", f.found)
			}
		})
	}
}
