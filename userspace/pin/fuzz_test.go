package pin

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// The reference decodes, tags the tree, and compares what the rewriter's output
// decodes to.

func refID(v any) any {
	s, ok := v.(string)
	if !ok || !strings.HasPrefix(s, "resp_") && !strings.HasPrefix(s, "conv_") || len(s) == 5 || refTag.MatchString(s) {
		return v
	}
	return s[:5] + testStamp + s[5:]
}

var refWord = regexp.MustCompile(`[A-Za-z0-9_.-]+`)

func refText(v any) any {
	s, ok := v.(string)
	if !ok {
		return v
	}
	return refWord.ReplaceAllStringFunc(s, func(w string) string {
		if len(w) > 5 && strings.ContainsAny(w[5:6], "_.-") {
			return w
		}
		return refID(w).(string)
	})
}

func refMember(v any, key string, f func(any) any) {
	if m, ok := v.(map[string]any); ok {
		if old, ok := m[key]; ok {
			m[key] = f(old)
		}
	}
}

func refObject(v any, topic bool) {
	for _, k := range []string{"id", "previous_response_id", "response_id", "conversation_id", "conversation"} {
		refMember(v, k, refID)
	}
	refMember(v, "conversation", func(c any) any { refMember(c, "id", refID); return c })
	refMember(v, "error", func(e any) any {
		refMember(e, "message", refText)
		refMember(e, "detail", refText)
		return refText(e)
	})
	if topic {
		refMember(v, "message", refText)
		refMember(v, "detail", refText)
	}
}

func refDocument(v any, topic bool) any {
	refObject(v, topic)
	refMember(v, "response", func(r any) any { refObject(r, false); return r })
	return v
}

func decode(b []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	ok = json.Valid(b) && d.Decode(&v) == nil
	return v, ok
}

// checkPieces compares the output of the whole with that of pieces, and that
// nothing but stamps was added.
func checkPieces(t *testing.T, form Form, in []byte, cuts uint32) []byte {
	t.Helper()
	out := rewrite(form, in)
	r := NewRewriter(testStamp, form)
	var got []byte
	for rest := in; len(rest) > 0; {
		n := min(1+int(cuts&7), len(rest))
		cuts = cuts>>3 | cuts<<29
		got = r.Append(got, rest[:n])
		rest = rest[n:]
	}
	if got = r.Finish(got); !bytes.Equal(got, out) {
		t.Fatalf("in pieces %q, whole %q", got, out)
	}
	if !bytes.Contains(in, []byte(testStamp)) && !bytes.Equal(bytes.ReplaceAll(out, []byte(testStamp), nil), in) {
		t.Fatalf("%q became %q", in, out)
	}
	if n := (len(out) - len(in)) / len(testStamp); n != r.Tagged() {
		t.Fatalf("%d stamps, Tagged = %d", n, r.Tagged())
	}
	return out
}

func FuzzRewriter(f *testing.F) {
	for _, c := range rewriteCases {
		if c.form == FormJSON || c.form == FormError {
			f.Add(c.in(), c.form == FormError, uint32(0x12345671))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, topic bool, cuts uint32) {
		form := FormJSON
		if topic {
			form = FormError
		}
		out := checkPieces(t, form, in, cuts)
		want, ok := decode(in)
		if !ok {
			return
		}
		want = refDocument(want, topic)
		if got, ok := decode(out); !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q became %q, want %v", in, out, want)
		}
	})
}

var (
	refLineEnd = regexp.MustCompile("\r\n|\n|\r")
	refField   = regexp.MustCompile("(?s)^(event|data): ?(.*)$")
)

type refEvent struct {
	name, data string
	ordered    bool // no name behind data
}

// refEvents splits a stream that is held whole.
func refEvents(stream []byte) (all []refEvent) {
	e := refEvent{ordered: true}
	var data []string
	for _, line := range append(refLineEnd.Split(string(stream), -1), "") {
		if line == "" {
			e.data = strings.Join(data, "\n")
			all = append(all, e)
			e, data = refEvent{ordered: true}, nil
			continue
		}
		switch m := refField.FindStringSubmatch(line); {
		case m == nil:
		case m[1] == "data":
			data = append(data, m[2])
		default:
			e.name = m[2]
			e.ordered = e.ordered && data == nil
		}
	}
	return all
}

func FuzzRewriterSSE(f *testing.F) {
	for _, c := range rewriteCases {
		if c.form == FormSSE {
			f.Add(c.in(), uint32(0x12345671))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, cuts uint32) {
		out := checkPieces(t, FormSSE, in, cuts)
		was, is := refEvents(in), refEvents(out)
		if len(was) != len(is) {
			t.Fatalf("%d events became %d", len(was), len(is))
		}
		for i, e := range was {
			want, ok := decode([]byte(e.data))
			if !ok || !e.ordered || len(e.name) > maxName {
				continue
			}
			if EventCarriesIDs(e.name) {
				want = refDocument(want, e.name == "" || e.name == "error")
			}
			if got, ok := decode([]byte(is[i].data)); !ok || is[i].name != e.name || !reflect.DeepEqual(got, want) {
				t.Fatalf("event %+v became %+v, want %v", e, is[i], want)
			}
		}
	})
}
