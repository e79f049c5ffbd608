package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Source is what the admin listener asks the agent.
type Source interface {
	Status() Status
	// Ready is false, with the reason, while draining or without an admitted backend.
	Ready() (ok bool, reason string)
	// Explain says how a body sent to path would be routed, without side effects.
	Explain(path string, body []byte) any
}

// AdminOptions configure an Admin.
type AdminOptions struct {
	Source       Source
	Gatherer     prometheus.Gatherer
	Pprof        bool
	MaxBodyBytes int64 // bound of an explained body
}

// Admin is the listener for operators. It never shares a port with clients.
type Admin struct {
	server *http.Server
	ln     net.Listener
}

// ListenAdmin opens addr. Serve must follow; Shutdown ends it.
func ListenAdmin(addr string, o AdminOptions) (*Admin, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Admin{ln: ln, server: &http.Server{Handler: adminHandler(o), ReadHeaderTimeout: 10 * time.Second}}, nil
}

// Addr is where it listens.
func (a *Admin) Addr() string { return a.ln.Addr().String() }

// Serve answers until Shutdown.
func (a *Admin) Serve() error {
	if err := a.server.Serve(a.ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown stops accepting and waits for answers under way, no longer than ctx.
func (a *Admin) Shutdown(ctx context.Context) error {
	if err := a.server.Shutdown(ctx); err != nil {
		return errors.Join(err, a.server.Close())
	}
	return nil
}

func adminHandler(o AdminOptions) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ok, reason := o.Source.Ready(); !ok {
			http.Error(w, reason, http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ready\n")
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, o.Source.Status()) })
	mux.HandleFunc("POST /v1/explain", func(w http.ResponseWriter, r *http.Request) {
		refuse := func(code int, why string) { writeJSON(w, code, map[string]string{"error": why}) }
		if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
			refuse(http.StatusUnsupportedMediaType, "the body must come without Content-Encoding, not in "+strconv.Quote(e))
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, o.MaxBodyBytes))
		var long *http.MaxBytesError
		switch {
		case errors.As(err, &long):
			refuse(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than max_body_bytes, %d", long.Limit))
			return
		case err != nil: // broken framing; a client that has left does not read this
			refuse(http.StatusBadRequest, "the body could not be read: "+err.Error())
			return
		}
		path := r.URL.Query().Get("path")
		if path == "" {
			path = "/v1/chat/completions"
		}
		writeJSON(w, http.StatusOK, o.Source.Explain(path, body))
	})
	if o.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil { // a figure that JSON has no word for: a mistake, which must not look like an empty answer
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n')) // a failed write means that the reader left
}
