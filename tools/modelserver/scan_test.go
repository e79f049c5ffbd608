package modelserver

import (
	"encoding/json"
	"reflect"
	"testing"
)

func scanned(r *request) []any {
	n, given := r.limit()
	usage := r.StreamOptions != nil && r.StreamOptions.IncludeUsage
	return []any{r.Model, r.Stream, n, given, usage, r.IgnoreEOS, r.RequestID}
}

// FuzzScan: on every body that encoding/json takes, the scan reads the same.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		hello, `{}`, ` { "model" : "a\"b" , "stream":true,"max_tokens":12}`, `{"messages":[{"content":"\\\"}{"}],"stream":true}`,
		`{"stream_options":{"include_usage":true},"x":[1,[2,{"model":"no"}]],"y":-1.5e3,"z":null}`, `{"a":"\\","max_completion_tokens":7}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var want, got request
		var members map[string]json.RawMessage
		if json.Unmarshal(b, &members) != nil || members == nil || json.Unmarshal(b, &want) != nil {
			_ = got.scan(b) // must only come back
			return
		}
		for name := range members { // encoding/json folds case and decodes names; the scan does not
			for _, c := range name {
				if c >= 'A' && c <= 'Z' || c > 126 {
					return
				}
			}
		}
		for _, c := range b {
			if c == '\\' {
				return // an escaped name; values with escapes are in the table above
			}
		}
		if err := got.scan(b); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if !reflect.DeepEqual(scanned(&got), scanned(&want)) {
			t.Fatalf("%q: got %v, want %v", b, scanned(&got), scanned(&want))
		}
	})
}

func TestScanTable(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages":[{"content":"\\\"}{"}],"model":"m"}`: "m",
		`{"x":"\\\\","model":"a\"b"}`:                     `a"b`,
		`{"x":{"model":"inner"},"model":"outer"}`:         "outer",
	} {
		var r request
		if err := r.scan([]byte(body)); err != nil || r.Model != want {
			t.Errorf("%s: model %q, %v; want %q", body, r.Model, err, want)
		}
	}
	for _, bad := range []string{``, `[]`, `{"a`, `{"a"`, `{"a":`, `{"a":"x`, `{"a":[`, `{"a":1`, `{"stream":"no"}`} {
		var r request
		if r.scan([]byte(bad)) == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
}

func BenchmarkScan220K(b *testing.B) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"` + fill(220<<10) + `"}],"stream":true}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var r request
		if err := r.scan(body); err != nil || !r.Stream {
			b.Fatal(err)
		}
	}
}

func fill(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "the quick brown fox "[i%20]
	}
	return string(b)
}
