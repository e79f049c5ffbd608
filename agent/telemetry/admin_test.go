package telemetry

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/prometheus/client_golang/prometheus"
)

// nobody is a Source that knows nothing.
type nobody struct{}

func (nobody) Status() Status                       { return Status{} }
func (nobody) Ready() (bool, string)                { return true, "" }
func (nobody) Explain(path string, body []byte) any { return map[string]string{path: string(body)} }

func TestExplainSaysWhatIsWrongWithABody(t *testing.T) {
	h := adminHandler(AdminOptions{Source: nobody{}, Gatherer: prometheus.NewRegistry(), MaxBodyBytes: 8})
	for _, tc := range []struct {
		name     string
		body     io.Reader
		encoding string
		code     int
		want     string
	}{
		{"fits", strings.NewReader("12345678"), "", 200, "12345678"},
		{"said to be plain", strings.NewReader("1"), "identity", 200, "1"},
		{"too long", strings.NewReader("123456789"), "", 413, "max_body_bytes, 8"},
		{"broken off", io.MultiReader(strings.NewReader("12"), iotest.ErrReader(io.ErrUnexpectedEOF)), "", 400, "unexpected EOF"},
		{"broken framing", iotest.ErrReader(errors.New("malformed chunked encoding")), "", 400, "malformed"},
		{"compressed", strings.NewReader("\x1f\x8b"), "gzip", 415, "gzip"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/v1/explain", tc.body)
			if tc.encoding != "" {
				r.Header.Set("Content-Encoding", tc.encoding)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("%d %s, want %d and %q", w.Code, w.Body, tc.code, tc.want)
			}
		})
	}
}

// TestUnprintableIsAnError: not an empty success.
func TestUnprintableIsAnError(t *testing.T) {
	w := httptest.NewRecorder()
	writeJSON(w, 200, math.Inf(1))
	if w.Code != 500 || w.Body.Len() == 0 {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}
