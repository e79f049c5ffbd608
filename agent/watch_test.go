package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/load"
)

// TestAdmissionIsLogged once when it ends and once when it is back for good: the trials
// of a backend that stays dead are no news.
func TestAdmissionIsLogged(t *testing.T) {
	var text bytes.Buffer
	a, err := New(t.Context(), settings(t, nil, "http://127.0.0.1:1", "http://127.0.0.1:1"), Options{Log: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var out map[uint32]bool
	for i, c := range []struct {
		admitted, trial bool
		want            string
	}{
		{true, false, ""},
		{false, false, "takes no requests"},
		{false, false, ""},
		{true, true, ""},
		{false, false, ""},
		{true, true, ""},
		{true, false, "takes requests again"},
		{true, false, ""},
	} {
		text.Reset()
		b := decide.BackendState{Slot: 1, Admitted: c.admitted, Trial: c.trial}
		if !c.admitted {
			b.Refusal = load.Ejected
		}
		out = a.logAdmission([]decide.BackendState{{Slot: 0, Admitted: true}, b, {Slot: 7}}, out)
		got := text.String()
		if c.want == "" && got != "" || !strings.Contains(got, c.want) || strings.Contains(got, "gpu0") {
			t.Errorf("step %d: logged %q, want %q", i, got, c.want)
		}
		if c.want != "" && !strings.Contains(got, "backend=gpu1") {
			t.Errorf("step %d: %q names no backend", i, got)
		}
	}
}
