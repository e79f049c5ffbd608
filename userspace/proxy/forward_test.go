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

// TestLargestBody: what max_body_bytes allows goes through whole.
func TestLargestBody(t *testing.T) {
	if testing.Short() {
		t.Skip("64 MB take seconds under the race detector")
	}
	g := newRig(t)
	body := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 64<<20-43) + `"}]}`
	if len(body) != 64<<20 {
		t.Fatalf("%d bytes", len(body))
	}
	g.add("a", func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != body {
			t.Errorf("%d bytes arrived, error %v", len(got), err)
		}
	})
	if resp, _ := g.post("/v1/chat/completions", body); resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if resp, _ := g.post("/v1/chat/completions", body+" "); resp.StatusCode != 413 {
		t.Errorf("one byte more: status %d", resp.StatusCode)
	}
	g.idle()
}

// TestBodiesThatCannotBeReadAreForwarded: they are the engine's to judge, and
// reach it byte for byte.
func TestBodiesThatCannotBeReadAreForwarded(t *testing.T) {
	g := newRig(t)
	g.add("a", echo)
	text := strings.Repeat("x", 1000)
	for name, body := range map[string]string{
		"empty object":      `{}`,
		"truncated":         `{"messages":[{"role":"user","content":"` + text,
		"deep":              strings.Repeat("[", 10000) + strings.Repeat("]", 10000),
		"deep objects":      `{"messages":` + strings.Repeat(`{"a":`, 10000) + "1" + strings.Repeat("}", 10000) + "}",
		"huge number":       `{"max_tokens":1e999999,"n":` + strings.Repeat("9", 5000) + `,"messages":[]}`,
		"invalid UTF-8":     "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe" + text + "\"}]}",
		"lone surrogate":    `{"messages":[{"role":"user","content":"\ud800` + text + `"}]}`,
		"duplicate members": `{"model":"a","model":"b","messages":[],"messages":[{"role":"user","content":"` + text + `"}]}`,
		"wrong types":       `{"model":7,"messages":{"role":[]},"prompt":true,"input":-1,"stream":"yes","max_tokens":[]}`,
		"NUL bytes":         "\x00\x00\x00",
		"BOM":               "\xef\xbb\xbf{}",
		"just a string":     `"hello"`,
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/other"} {
			resp, got := g.post(path, body)
			if resp.StatusCode != 200 || got != "POST "+path+"\n"+body {
				t.Errorf("%s, %s: status %d, %d bytes back", path, name, resp.StatusCode, len(got))
			}
		}
	}
	g.idle()
}
