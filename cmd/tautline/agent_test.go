package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/test/testutil"
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

// mainArgs makes the test binary run main with these arguments instead of tests.
const mainArgs = "TAUTLINE_TEST_MAIN"

func TestMain(m *testing.M) {
	if args := os.Getenv(mainArgs); args != "" {
		os.Args = append([]string{"tautline"}, strings.Split(args, " ")...)
		main()
	}
	os.Exit(m.Run())
}

// TestSecondInterruptEndsADrain: whoever presses Ctrl-C again does not want to wait for
// the answers under way.
func TestSecondInterruptEndsADrain(t *testing.T) {
	asked := make(chan struct{})
	engine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		close(asked)
		<-r.Context().Done()
	}))
	defer engine.Close()
	a := startProcess(t, "--listen 127.0.0.1:0 --splice off --admin 127.0.0.1:0 --backend "+engine.URL)
	go func() {
		if resp, err := http.Post(a.url+"/v1/chat/completions", "application/json", strings.NewReader("{}")); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-asked
	_ = a.cmd.Process.Signal(os.Interrupt)
	testutil.Eventually(t, "it drains", func() bool { return strings.Contains(a.log.String(), "draining") })
	_ = a.cmd.Process.Signal(os.Interrupt)
	<-a.ended
	if s, ok := a.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGINT {
		t.Errorf("ended with %v, want by the second signal", a.cmd.ProcessState)
	}
}
