package usage

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestMachine(t *testing.T) {
	m, err := parseMachine("cpu  100 2 30 1000 50 4 5 6 7 8\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Machine{Busy: 1410 * time.Millisecond, Stolen: 60 * time.Millisecond, Total: 11970 * time.Millisecond}
	if m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
	if _, err := parseMachine("cpus 1"); err == nil {
		t.Error("garbage was read")
	}
	if _, err := OfMachine(); err != nil {
		t.Error(err)
	}
}

func TestOwnCPUGrows(t *testing.T) {
	before, err := Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for {
		u, err := Of(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if d := u.Sub(before); d.CPU > 5*time.Millisecond {
			break // reading this takes CPU, so the loop ends
		}
	}
	if before.RSS < 1<<20 {
		t.Errorf("RSS %d is too small to be true", before.RSS)
	}
}

func TestTreeFindsGrandchildren(t *testing.T) {
	// The shell is the child; what it waits for is the grandchild.
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, pid := range Descendants(cmd.Process.Pid) {
			p, _ := os.FindProcess(pid)
			_ = p.Kill()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	buf := make([]byte, 32)
	if _, err := out.Read(buf); err != nil { // the grandchild exists now
		t.Fatal(err)
	}
	kids := Descendants(cmd.Process.Pid)
	if len(kids) != 1 {
		t.Fatalf("descendants of the shell: %v", kids)
	}
	if !slices.Contains(Descendants(os.Getpid()), kids[0]) {
		t.Errorf("grandchild %d is not among the test's descendants", kids[0])
	}
	own, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := OfTree(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if tree.RSS <= own.RSS {
		t.Errorf("tree's RSS %d is not above the shell's %d", tree.RSS, own.RSS)
	}
}

func TestGone(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if u, err := OfTree(cmd.Process.Pid); err == nil {
		t.Errorf("usage of an ended process: %+v", u)
	}
}
