package bpf_test

import (
	"os"
	"testing"

	"github.com/tautline/tautline/bpf"
)

// The verifier's work is what a start of the agent costs, and a program that is
// close to the limit here is over it on another kernel.
func TestVerifierEffort(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads BPF programs")
	}
	var objs bpf.TautlineObjects
	if err := bpf.LoadTautlineObjects(&objs, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	defer objs.Close()
	info, err := objs.OnMessage.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := info.VerifiedInstructions()
	if !ok {
		t.Skip("this kernel does not report verified instructions")
	}
	t.Logf("on_message: %d instructions walked", n)
	if n > 100_000 {
		t.Errorf("%d instructions walked, a tenth of the limit", n)
	}
}
