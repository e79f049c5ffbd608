package bench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
)

// route is a router of the test's own; it flips bits or refuses when told so.
func route(manner, listen, upstream string) {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	proxy.FlushInterval = -1
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Whole first: net/http closes a body as soon as the answer begins, and a
		// transport that still reads it then drops the upstream connection, answer
		// and all. A server as quick as the stream server meets that.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case manner == "refuse" && r.Method == http.MethodPost:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case manner == "flip" && r.Method == http.MethodPost:
			proxy.ServeHTTP(&flipper{ResponseWriter: w}, r)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
	if err := http.ListenAndServe(listen, h); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// flipper changes one letter of every second write.
type flipper struct {
	http.ResponseWriter
	n int
}

func (f *flipper) Write(b []byte) (int, error) {
	if f.n++; f.n%2 == 0 {
		b = []byte(strings.Replace(string(b), "completion.chunk", "completion.chump", 1))
	}
	return f.ResponseWriter.Write(b)
}

func (f *flipper) Unwrap() http.ResponseWriter { return f.ResponseWriter }
