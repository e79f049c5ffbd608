package key

import "testing"

// TestEndsAreFound asks for every noted end, in order and out of order: a miss
// would cost time only, so no other test would see it.
func TestEndsAreFound(t *testing.T) {
	var r reader
	r.body = []byte(agentBody(20))
	if !r.scan() {
		t.Fatal("body is not JSON")
	}
	list := r.ends.list
	if len(list) < 60 {
		t.Fatalf("%d ends noted", len(list))
	}
	check := func(e end) {
		t.Helper()
		if got := r.ends.find(int(e.start)); got != int(e.end) {
			t.Fatalf("value at %d ends at %d, noted %d", e.start, got, e.end)
		}
		if got := skipValue(r.body, int(e.start), 0, nil); got != int(e.end) {
			t.Fatalf("value at %d ends at %d, noted %d", e.start, got, e.end)
		}
	}
	for i := range list {
		check(list[i])
		check(list[len(list)-1-i])
		check(list[i*7%len(list)])
	}
}
