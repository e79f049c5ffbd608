package testutil

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func waitFor(begun, c chan struct{}) {
	close(begun)
	<-c
}

func TestLingering(t *testing.T) {
	words := []string{"nowhere", "testutil.waitFor"}
	if left := lingering(0, words); left != "" {
		t.Fatalf("before: %s", left)
	}
	begun, c := make(chan struct{}), make(chan struct{})
	go waitFor(begun, c)
	<-begun
	if left := lingering(0, words); !strings.Contains(left, "waitFor") || strings.Contains(left, "\n\n") {
		t.Errorf("found %q, want the one that waits", left)
	}
	close(c)
	if left := lingering(time.Minute, words); left != "" {
		t.Errorf("after its end: %s", left)
	}
}

func TestStart(t *testing.T) {
	var got string
	t.Run("a child", func(t *testing.T) {
		in, out := Start(t, exec.Command("cat"))
		if _, err := in.Write([]byte("word\n")); err != nil {
			t.Fatal(err)
		}
		var err error
		if got, err = bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	})
	if got != "word\n" {
		t.Errorf("got %q", got)
	}
}
