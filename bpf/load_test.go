package bpf_test

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

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

// TestSockhashWithTypes (H18): some kernels refuse a sockhash whose definition tells the
// types of its keys and values. It is made without them then.
func TestSockhashWithTypes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes BPF maps")
	}
	spec, err := bpf.LoadTautline()
	if err != nil {
		t.Fatal(err)
	}
	hashes := 0
	for name, m := range spec.Maps {
		if m.Type != ebpf.SockHash {
			continue
		}
		hashes++
		m := m.Copy()
		m.Key = &btf.Int{Name: "key", Size: m.KeySize}
		m.Value = &btf.Int{Name: "value", Size: m.ValueSize}
		made, err := ebpf.NewMap(m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		made.Close()
	}
	if hashes == 0 {
		t.Error("there is no sockhash: this test shows nothing")
	}
}
