// Package testutil holds what the tests of several packages need. It knows none of
// our packages, so that any test may import it.
package testutil

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// patience is how long goroutines may take to end after the last test.
const patience = 5 * time.Second

// Run runs the tests of a TestMain and returns the code to exit with. It fails the
// run when goroutines are left whose stacks contain one of the words.
func Run(m *testing.M, words ...string) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if left := lingering(patience, words); left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		return 1
	}
	return 0
}

// lingering returns the stacks that contain one of the words and are still there
// after a while, the caller's own aside.
func lingering(patience time.Duration, words []string) string {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		for i, g := range strings.Split(stacks(), "\n\n") {
			if i > 0 && containsAny(g, words) { // the first one is ours
				left = append(left, g)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}

// stacks returns those of all goroutines, whole.
func stacks() string {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return string(buf[:n])
		}
	}
}

func containsAny(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}
