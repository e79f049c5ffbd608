package load

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What is received counts heads and framing, as what a kernel carries does: a share of
// it is never more than all.
func TestReceivedIsWhatWasOnTheWire(t *testing.T) {
	const pieces = 3
	piece := strings.Repeat("x", 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range pieces {
			_, _ = w.Write([]byte(piece))
			w.(http.Flusher).Flush()
		}
	}))
	defer srv.Close()
	c := NewClient(srv.URL, 1)
	defer c.Close()
	res := c.Do(t.Context(), Request{Path: "/", Body: []byte("{}")})
	if !res.OK() || res.Bytes != pieces*100 {
		t.Fatalf("%d bytes, %v", res.Bytes, res.Err)
	}
	// "64" and two line ends around each piece, the last chunk, and a head.
	framed := res.Bytes + pieces*int64(len("64\r\n\r\n")) + int64(len("0\r\n\r\n"))
	if head := c.Received() - framed; head < int64(len("HTTP/1.1 200 OK\r\n\r\n")) || head > 500 {
		t.Errorf("%d bytes received, of which the body with its framing is %d", c.Received(), framed)
	}
}
