package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/tools/modelserver"
)

// TestAFullSGLang: what it refuses inside a stream is answered by another engine, and
// where that is full as well the client sees what the engine said.
func TestAFullSGLang(t *testing.T) {
	for _, splice := range []string{"off", "auto"} {
		t.Run("splice "+splice, func(t *testing.T) {
			c := engineConfig()
			c.Engine, c.TokenDelay = modelserver.SGLang, time.Millisecond
			var engines []*modelserver.Server
			var urls []string
			for range 2 {
				s, err := modelserver.Start(c)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				engines, urls = append(engines, s), append(urls, s.URL())
			}
			a := startAgent(t, urls, splice, map[string]any{"prefix_affinity.exploration": 0})
			if s := a.Status().Splice; splice == "auto" && s.State != "on" {
				t.Skipf("the kernel cannot splice here: %s", s.Reason)
			}
			testutil.Eventually(t, "the engines are known", func() bool {
				for _, b := range a.Status().Backends {
					if b.Engine != modelserver.SGLang {
						return false
					}
				}
				return true
			})
			send := func(base, path string, n int) string {
				t.Helper()
				text := fmt.Sprintf("question %d %s", n, strings.Repeat("x", 2000))
				body := fmt.Sprintf(`{"model":"stand-in","stream":true,"max_tokens":20,"min_tokens":20,"prompt":%q,"messages":[{"role":"user","content":%q}]}`, text, text)
				resp, err := http.Post(base+path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("%s: %d %s, %v", path, resp.StatusCode, got, err)
				}
				return string(got)
			}
			base := "http://" + a.Addr()

			engines[0].SetFault(modelserver.Fault{Full: true})
			n := 0
			for route, path := range map[string]string{"chat": "/v1/chat/completions", "completions": "/v1/completions"} {
				for i := 0; i < 8 || i < 100 && engines[0].Requests()[route] == 0; i++ {
					n++
					if got, want := send(base, path, n), send(engines[1].URL(), path, n); got != want {
						t.Fatalf("%s %d: %.300q, want %.300q", path, n, got, want)
					}
				}
			}
			if asked := engines[0].Requests(); asked["chat"] == 0 || asked["completions"] == 0 {
				t.Errorf("the full engine was never asked: %v", asked)
			}
			if served := engines[0].Stats().Finished; served != 0 {
				t.Errorf("the full engine answered %v requests", served)
			}
			s := settled(t, a)
			if splice == "auto" && s.Splice.Outcomes["ended/spliced"] < uint64(n)/2 {
				t.Errorf("of %d streams ended %v", n, s.Splice.Outcomes)
			}

			engines[1].SetFault(modelserver.Fault{Full: true})
			want := send(engines[1].URL(), "/v1/chat/completions", 0)
			if got := send(base, "/v1/chat/completions", 0); got != want || !strings.Contains(want, `"code": 503}}`) {
				t.Errorf("all are full: %q, want %q", got, want)
			}
			settled(t, a)
		})
	}
}
