package upstream

import (
	"os"
	"testing"

	"github.com/tautline/tautline/test/testutil"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { os.Exit(testutil.Run(m, "userspace/upstream.")) }
