package upstream

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		code = left()
	}
	os.Exit(code)
}

// left reports the goroutines of this package that do not end by themselves.
func left() int {
	var text string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		text = string(buf[:runtime.Stack(buf, true)])
		if strings.Count(text, "userspace/upstream.") <= strings.Count(text, "upstream.left")+strings.Count(text, "upstream.TestMain") {
			return 0
		}
	}
	fmt.Println("goroutines left behind:\n" + text)
	return 1
}
