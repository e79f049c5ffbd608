package splice_test

import (
	"testing"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/splice"
)

// The self-test passes, and leaves no connection and no number behind: operators
// would take it for a client's.
func TestSelfTest(t *testing.T) {
	r := newRig(t)
	e := newEngine(t, stream("s", 10, 80))
	p := r.dial(t)
	p.ask(t, e, "/")
	p.answer(t)
	p.Close()
	r.tr.CloseIdleConnections()
	testutil.Eventually(t, "the connections to end", func() bool { live, err := r.set.Live(); return err == nil && len(live) == 0 })
	before, err := r.set.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if before[bpf.ClaimTaken].Events == 0 {
		t.Error("nothing was counted before: the test proves nothing")
	}
	for _, c := range splice.SelfTest(t.Context(), r.set, splice.Default()) {
		t.Logf("%-12s %v %s", c.Name, c.OK, c.Detail)
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
	live, err := r.set.Live()
	if err != nil || len(live) != 0 {
		t.Errorf("left behind: %v, %v", live, err)
	}
	if after, err := r.set.Counters(); err != nil || after != before {
		t.Errorf("counters were %v, are %v, %v", before, after, err)
	}
}
