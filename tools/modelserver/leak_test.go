package modelserver

import (
	"os"
	"testing"

	"github.com/tautline/tautline/test/testutil"
)

// TestMain fails when the tests leave goroutines of this package behind.
func TestMain(m *testing.M) { os.Exit(testutil.Run(m, "modelserver.")) }
