package splice_test

import (
	"testing"

	"github.com/tautline/tautline/userspace/splice"
)

func TestSelfTest(t *testing.T) {
	d := openDatapath(t)
	for _, c := range splice.SelfTest(t.Context(), d.Maps(), splice.Default()) {
		t.Logf("%-12s %v %s", c.Name, c.OK, c.Detail)
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
	live, err := d.Maps().Live()
	if err != nil || len(live) != 0 {
		t.Errorf("left behind: %v, %v", live, err)
	}
}
