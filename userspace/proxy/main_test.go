package proxy

import (
	"fmt"
	"os"
	"testing"

	"github.com/tautline/tautline/test/testutil"
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
	os.Exit(testutil.Run(m, "net/http", "tautline"))
}
