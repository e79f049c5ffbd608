package testutil

import (
	"testing"
	"time"
)

// Eventually waits until a condition holds that something else brings about. Its
// limit, a minute, only ends a hang: it is no assertion about time.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
