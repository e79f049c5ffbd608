package agent

import (
	"bytes"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/tools/modelserver"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/index"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/load"
	"github.com/tautline/tautline/userspace/pin"
	"github.com/tautline/tautline/userspace/proxy"
)

// benchPinner is a pinner that knows one backend.
func benchPinner(b *testing.B, fleet *decide.Fleet) *pinner {
	b.Helper()
	tagger, err := pin.NewTagger("local", [][]byte{bytes.Repeat([]byte("k"), 32)})
	if err != nil {
		b.Fatal(err)
	}
	p := &pinner{fleet: fleet, now: func() decide.Instant { return 0 }}
	m := member{slot: 0}
	m.cfg.Site, m.cfg.Name = "local", "gpu0"
	if err := p.set("local", tagger, map[string]member{"local/gpu0": m}, func(s decide.Spec) string { return s.Name }); err != nil {
		b.Fatal(err)
	}
	return p
}

// BenchmarkUnpinned is a chat request over loopback with the agent's Pinner and
// with none; "look" is all that the Pinner does for it.
func BenchmarkUnpinned(b *testing.B) {
	fleet := decide.NewFleet(decide.Default(), index.Default(), load.Default(), mathrand.New(mathrand.NewPCG(1, 2)))
	p := benchPinner(b, fleet)
	b.Run("look", func(b *testing.B) {
		b.ReportAllocs()
		r := proxy.PinRequest{Method: http.MethodPost, Path: "/v1/chat/completions", API: key.APIChat}
		for b.Loop() {
			if p.Readable(r) {
				b.Fatal("chat is taken for stored state")
			}
		}
	})
	c := modelserver.Default()
	c.Instant = true
	engine, err := modelserver.Start(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { engine.Close() })
	slot := fleet.Add(decide.Spec{Site: "local", Name: "gpu0", Models: []string{"stand-in"}})
	body := `{"model":"stand-in","max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("prefix ", 600) + `"}]}`
	for _, v := range []struct {
		name   string
		pinner proxy.Pinner
	}{{"none", proxy.NoPin{}}, {"pinner", p}} {
		b.Run(v.name, func(b *testing.B) {
			px, err := proxy.New(proxy.Options{
				Params: proxy.Default(), Router: fleet, Hasher: key.NewHasher([32]byte{}, key.Options{}),
				Pinner: v.pinner, Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := px.AddBackend(slot, proxy.Backend{Name: "gpu0", URL: engine.URL()}); err != nil {
				b.Fatal(err)
			}
			ln, err := proxy.Listen(b.Context(), "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- px.Serve(ln, nil) }()
			client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{}}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := client.Post("http://"+ln.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					b.Fatal(resp.StatusCode, err)
				}
				_ = resp.Body.Close()
			}
			b.StopTimer()
			client.CloseIdleConnections()
			if err := px.Shutdown(b.Context()); err != nil {
				b.Error(err)
			}
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
	}
}
