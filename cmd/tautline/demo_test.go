package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tautline/tautline/tools/demo"
)

// TestDemoThatIsInterrupted blames whoever interrupted it, not the agent.
func TestDemoThatIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	c := newDemo()
	c.SetContext(ctx)
	if err := demoTable(c, &demo.Fleet{Admin: "http://127.0.0.1:1"}, demo.Report{}); !errors.Is(err, enough) {
		t.Errorf("got %v, want %v", err, enough)
	}
}

// TestDemoPrintsWhatCanBePasted: the command is the one that was started.
func TestDemoPrintsWhatCanBePasted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := keepRunning(ctx, &out, "bin/tautline", &demo.Fleet{URL: "http://u", Admin: "http://a"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "bin/tautline status --admin http://a\n") {
		t.Errorf("printed %s", out.String())
	}
}
