package sim

import (
	"context"
	"testing"
)

// Everything that the article states about its toy, at full length.
func TestSeedChecks(t *testing.T) {
	seeds := 5
	if testing.Short() {
		seeds = 3
	}
	checks, err := SeedChecks(context.Background(), seeds, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		t.Logf("%v: %s: want %s, got %s", c.Passed, c.Name, c.Want, c.Got)
		if !c.Passed {
			t.Errorf("%s: want %s, got %s", c.Name, c.Want, c.Got)
		}
	}
}
