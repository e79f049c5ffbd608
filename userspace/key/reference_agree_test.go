package key

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"
)

var testSecret = [32]byte([]byte("0123456789abcdef0123456789ABCDEF"))

// agree fails unless Read and the reference find the same in a valid body.
func agree(t *testing.T, h *Hasher, o Options, api API, body []byte, got *Prompt) {
	t.Helper()
	h.Read(api, body, got)
	want := refRead(testSecret, o, api, body)
	if got.Reason != want.Reason {
		t.Fatalf("reason %v, reference %v\n%.400q", got.Reason, want.Reason, body)
	}
	if !slices.Equal(got.Keys, want.Keys) {
		t.Fatalf("%d keys differ from the reference's %d\n%.400q", len(got.Keys), len(want.Keys), body)
	}
	if got.Usage != want.Usage {
		t.Fatalf("usage %v, reference %v\n%.400q", got.Usage, want.Usage, body)
	}
	if got.Bytes != want.Bytes || got.Model != want.Model || got.Stream != want.Stream || got.MaxTokens != want.MaxTokens {
		t.Fatalf("got %d bytes, model %q, stream %v, limit %d; reference %d, %q, %v, %d\n%.400q",
			got.Bytes, got.Model, got.Stream, got.MaxTokens, want.Bytes, want.Model, want.Stream, want.MaxTokens, body)
	}
}

func TestReadAgreesWithReference(t *testing.T) {
	for _, o := range []Options{{}, {TokenArrays: true}} {
		h := NewHasher(testSecret, o)
		var p Prompt
		for _, s := range samples() {
			t.Run(s.name, func(t *testing.T) {
				if !json.Valid([]byte(s.body)) {
					t.Fatalf("sample is not JSON: %.200s", s.body)
				}
				agree(t, h, o, s.api, []byte(s.body), &p)
			})
		}
	}
}

func FuzzRead(f *testing.F) {
	seedFuzz(f)
	o := Options{TokenArrays: true}
	h := NewHasher(testSecret, o)
	f.Fuzz(func(t *testing.T, api uint8, body []byte) {
		a := API(api % 5)
		var p Prompt
		if json.Valid(body) && utf8.Valid(body) {
			agree(t, h, o, a, body, &p)
			return
		}
		h.Read(a, body, &p)
		if a != APIUnknown && !utf8.Valid(body) && p.Reason != ReasonInvalid {
			t.Fatalf("reason %v, but not UTF-8", p.Reason)
		}
		checkPrompt(t, body, &p)
	})
}

// checkPrompt holds for every body, valid or not.
func checkPrompt(t *testing.T, body []byte, p *Prompt) {
	t.Helper()
	if (p.Reason == ReasonNone) != (len(p.Keys) > 0) {
		t.Fatalf("reason %v with %d keys", p.Reason, len(p.Keys))
	}
	if len(p.Keys) > 0 && Blocks(len(p.Keys))*BlockBytes > p.Bytes {
		t.Fatalf("%d keys of %d bytes", len(p.Keys), p.Bytes)
	}
	for _, s := range []Span{p.PreviousResponseID, p.Conversation, p.RequestID} {
		if s == (Span{}) {
			continue
		}
		if s.Start < 0 || s.End > len(body) || s.End-s.Start < 2 || body[s.Start] != '"' || body[s.End-1] != '"' {
			t.Fatalf("span %v is not a string", s)
		}
	}
}
