package testutil

import (
	"testing"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
)

// MapSet makes a Set of maps that the test has loaded, and closes it before them.
func MapSet(t testing.TB, m bpf.TautlineMaps) *maps.Set {
	t.Helper()
	s, err := maps.New(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
