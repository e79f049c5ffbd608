package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestForwardsAnyMethodAndPath: what the agent does not know goes on unchanged.
func TestForwardsAnyMethodAndPath(t *testing.T) {
	g := newRig(t)
	g.add("a", echo)
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/health", ""},
		{"GET", "/v1/models?x=1&y=%20;z", ""},
		{"DELETE", "/v1/files/a%2Fb", ""},
		{"PUT", "//double//slash/", "text"},
		{"PATCH", "/", "{}"},
		{"PURGE", "/odd", ""},
		{"POST", "/v1/audio/transcriptions", "binary\x00\xff"},
		{"POST", "/v1/chat/completions", chat("hello")},
		{"POST", "/v1/chat/completions/", chat("hello")},
		{"POST", "/v1/messages", "not json at all"},
		{"POST", "/v1/embeddings?", "{}"},
	} {
		req, err := http.NewRequest(tc.method, "http://"+g.addr+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, body := g.do(req)
		if want := tc.method + " " + tc.path + "\n" + tc.body; resp.StatusCode != 200 || body != want {
			t.Errorf("%s %s: %d %q, want %q", tc.method, tc.path, resp.StatusCode, body, want)
		}
	}
	g.idle()
}

// TestBodyArrivesByteForByte in every size around the edges of the buffers.
func TestBodyArrivesByteForByte(t *testing.T) {
	g := newRig(t)
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Length", r.Header.Get("Content-Length"))
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	})
	for _, n := range []int{1, 4095, 4096, 4097, 65536, 524287, 524288, 524289, 3 << 20} {
		body := `{"messages":"` + strings.Repeat("x", n) + `"}`
		for _, chunked := range []bool{false, true} {
			var src io.Reader = strings.NewReader(body)
			if chunked {
				src = io.MultiReader(src) // hides the length
			}
			req, err := http.NewRequest("POST", "http://"+g.addr+"/v1/chat/completions", src)
			if err != nil {
				t.Fatal(err)
			}
			resp, got := g.do(req)
			if resp.StatusCode != 200 || got != body {
				t.Errorf("%d bytes, chunked %v: status %d, %d bytes came back", n, chunked, resp.StatusCode, len(got))
			}
		}
	}
	g.idle()
}
