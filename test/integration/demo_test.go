package integration

import (
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// TestDemoShowsTheSplice: the first command that README gives answers every request, and
// shows that nearly all that the clients received came through the kernel.
func TestDemoShowsTheSplice(t *testing.T) {
	bpffs(t) // the demo splices where this is
	out, err := exec.CommandContext(t.Context(), binary(t), "demo", "--duration", "2s").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := regexp.MustCompile(`(\d+) % of all bytes that the clients received`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no share is shown:\n%s", out)
	}
	if share, _ := strconv.Atoi(string(m[1])); share < 80 || share > 100 {
		t.Errorf("%d %% of the bytes, want nearly all:\n%s", share, out)
	}
}
