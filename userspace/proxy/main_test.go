package proxy

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the run when a test leaves a goroutine of this package's
// servers, transports or handlers behind. It is also where the other processes
// of the benchmarks begin.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := benchRole(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if code == 0 {
		if left := lingering(5 * time.Second); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// lingering returns the stacks of goroutines that are still there after a while.
func lingering(patience time.Duration) string {
	var left []string
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		left = left[:0]
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "net/http") || strings.Contains(g, "tautline") && !strings.Contains(g, "TestMain") {
				left = append(left, g)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}
