package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tautline/tautline/agent"
	"github.com/tautline/tautline/agent/telemetry"
)

// TestTablesFitATerminal: with every outcome counted, too, and nothing left out.
func TestTablesFitATerminal(t *testing.T) {
	all := map[string]uint64{}
	for _, outcome := range []string{"sticky", "no_match", "load_override", "exploration", "not_applicable", "lone", "pinned"} {
		all[outcome] = 1_000_000
	}
	s := telemetry.Status{Backends: []telemetry.BackendStatus{
		{Site: "local", Name: "gpu0", Admitted: true, Measured: true, Picks: all},
		{Site: "local", Name: "gpu1", Why: "ejected", Picks: all, PollError: "connection refused"},
	}}
	var b strings.Builder
	if err := printBackends(&b, s.Backends); err != nil {
		t.Fatal(err)
	}
	table, notes, _ := strings.Cut(b.String(), "local/gpu1 cannot be polled: connection refused")
	if notes != "\n" || !strings.Contains(table, "7000000") || !strings.Contains(table, "no: ejected") {
		t.Errorf("printed\n%s", b.String())
	}
	for line := range strings.Lines(table) {
		if n := len(strings.TrimRight(line, "\n")); n > 132 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	b.Reset()
	if err := printStatus(&b, s); err != nil {
		t.Fatal(err)
	}
	if want := "exploration 2000000, load_override 2000000, lone 2000000"; !strings.Contains(b.String(), want) {
		t.Errorf("lacks %q:\n%s", want, b.String())
	}
}

// TestABackendWithoutFiguresSaysWhy: one that takes requests and tells no queue, because
// its engine is configured wrongly or shows no metrics, looks well otherwise.
func TestABackendWithoutFiguresSaysWhy(t *testing.T) {
	last := &telemetry.PollError{Error: "no known series"}
	var b strings.Builder
	err := printBackends(&b, []telemetry.BackendStatus{
		{Site: "local", Name: "blind", Admitted: true, LastPollError: last},
		{Site: "local", Name: "sees", Admitted: true, Measured: true, LastPollError: last},
		{Site: "local", Name: "new", Admitted: true},
	})
	if want := "local/blind tells no queue: no known series\n"; err != nil || !strings.HasSuffix(b.String(), "\n"+want) {
		t.Errorf("%v, printed\n%s\nwant %q at the end", err, b.String(), want)
	}
}

// TestWatchGoesOnThroughAnOutage: what one watches for is what must not end the watch.
func TestWatchGoesOnThroughAnOutage(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1: // no backend is admitted
			_, _ = io.WriteString(w, `{"version":"v1"}`)
		case 2: // the agent is not itself
			http.Error(w, "restarting", http.StatusBadGateway)
		default:
			cancel()
			_, _ = io.WriteString(w, `{"version":"v3"}`)
		}
	}))
	defer s.Close()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"status", "--watch", "--admin", s.URL}, nil, &out, &errs)
	if n := asked.Load(); code != exitOK || n != 3 {
		t.Errorf("exit %d after %d looks: %s", code, n, errs.String())
	}
	if got := errs.String(); !strings.Contains(got, "no backend is admitted") || !strings.Contains(got, "502 Bad Gateway: restarting") {
		t.Errorf("said %q", got)
	}
	if code, _, _ := exec(t, "", "status", "--watch", "--admin", "::x"); code != exitUsage {
		t.Errorf("exit %d for an address that is none", code)
	}
}

func TestStatusShowsWhatIsHeld(t *testing.T) {
	for _, c := range []struct {
		hold *telemetry.Hold
		want []string
	}{
		{nil, []string{"7 in flight"}},
		{&telemetry.Hold{LimitSeconds: 60}, []string{"7 in flight", "0 in the agent, for 1m0s at most"}},
		{&telemetry.Hold{LimitSeconds: 60, Held: 3, Waited: &telemetry.Quantiles{Count: 9, P50: 2.5}},
			[]string{"4 in flight", "3 in the agent, for 1m0s at most; 9 so far, half of them for 2.5s or less"}},
		// Some had been answered before the others were counted.
		{&telemetry.Hold{LimitSeconds: 60, Held: 9}, []string{"0 in flight", "9 in the agent, for 1m0s at most"}},
	} {
		var b strings.Builder
		if err := printStatus(&b, telemetry.Status{ActiveStreams: 7, Hold: c.hold}); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(b.String(), want+"\n") {
				t.Errorf("lacks %q:\n%s", want, b.String())
			}
		}
		if c.hold == nil && strings.Contains(b.String(), "held") {
			t.Errorf("holding is off:\n%s", b.String())
		}
	}
	var b strings.Builder
	if err := printExplanation(&b, agent.Explanation{Held: true, Outcome: "none", Reason: "no_room"}); err != nil {
		t.Fatal(err)
	}
	if want := "goes nowhere yet and is held: none, no_room"; !strings.Contains(b.String(), want) {
		t.Errorf("lacks %q:\n%s", want, b.String())
	}
}

func TestExplanationsSayYesAndNo(t *testing.T) {
	var b strings.Builder
	if err := printExplanation(&b, agent.Explanation{Candidates: []agent.Candidate{{Backend: "a", Sticky: true}, {Backend: "b"}}}); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); strings.Contains(got, "true") || strings.Contains(got, "false") || !strings.Contains(got, "yes") || !strings.Contains(got, "no") {
		t.Errorf("printed\n%s", got)
	}
}

func TestOthersLine(t *testing.T) {
	for _, c := range []struct {
		s    telemetry.Status
		want string
	}{
		{telemetry.Status{Policy: "priced", Unlike: true}, "too"},
		{telemetry.Status{Policy: "priced-spread", Unlike: true}, "hash_key_path"},
		{telemetry.Status{Policy: "priced-spread", SharedKeys: true, Unlike: true}, "leave to it"},
		{telemetry.Status{Policy: "priced-spread", SharedKeys: true}, "too"},
	} {
		if got := othersLine(c.s); !strings.Contains(got, c.want) || c.want == "too" && !strings.HasSuffix(got, c.want) {
			t.Errorf("%+v: %q, want %q in it", c.s, got, c.want)
		}
	}
}
