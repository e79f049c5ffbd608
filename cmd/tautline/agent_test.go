package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/agent/config"
)

// TestHangUpWhileTheAgentStarts: whoever changes the file while the agent starts, and says
// so, is heard once it runs. Left alone, the signal would end the process.
func TestHangUpWhileTheAgentStarts(t *testing.T) {
	guard := make(chan os.Signal, 1)
	signal.Notify(guard, syscall.SIGHUP) // or it would end the test
	defer signal.Stop(guard)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only ends a hang
	defer cancel()
	c := newAgent()
	c.SetContext(ctx)
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	loads := 0
	err := runAgent(c, func() (*config.Config, error) {
		if loads++; loads == 1 {
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				t.Error(err)
			}
			<-guard
		} else {
			cancel()
		}
		return config.Load("", map[string]any{"listen": "127.0.0.1:0", "admin": "", "splice.mode": "off", "log.level": "error"})
	})
	if err != nil || loads != 2 {
		t.Errorf("the settings were read %d times, want twice: %v", loads, err)
	}
}
