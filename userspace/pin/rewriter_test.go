package pin

import "testing"

func TestRewriterFirst(t *testing.T) {
	r := NewRewriter("a.00000000..", FormJSON)
	got := string(r.Finish(r.Append(nil, []byte(`{"id":"resp_1","metadata":{"id":"resp_2"},"conversation":{"id":"conv_3"}}`))))
	want := `{"id":"resp_a.00000000..1","metadata":{"id":"resp_2"},"conversation":{"id":"conv_a.00000000..3"}}`
	if got != want {
		t.Errorf("got %s", got)
	}
}
