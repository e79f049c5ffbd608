package datapath_test

import (
	"os"
	"testing"

	"github.com/tautline/tautline/agent/datapath"
)

func TestOpen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	d, err := datapath.Open(datapath.Options{})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Log(d.Cgroup())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
