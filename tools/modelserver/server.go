package modelserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdmaps "maps"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxBody bounds a request body in bytes.
const maxBody = 256 << 20

// Server is a stand-in engine: an http.Handler with a scheduler behind it.
// Close it when done.
type Server struct {
	cfg    Config
	engine *engine
	store  *store
	mux    *http.ServeMux
	stop   context.CancelCauseFunc
	ctx    context.Context // ends with Close
	wg     sync.WaitGroup  // the scheduler and background responses

	fault  atomic.Pointer[Fault]
	start  atomic.Int64 // process start, Unix nanoseconds
	serial atomic.Uint64
	salt   uint64
	bodies sync.Pool // of *bytes.Buffer, in instant mode

	mu       sync.Mutex
	requests map[string]uint64 // by route
	served   *served           // when it has a listener of its own
}

// served is a listener with its HTTP server.
type served struct {
	url  string
	http *http.Server
	done chan struct{}
}

var errClosed = errors.New("model server closed")

// New starts an engine. It fails when the Config is not valid.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("model server: %w", err)
	}
	s := &Server{
		cfg:      cfg,
		engine:   newEngine(cfg),
		store:    newStore(cfg.StoredMax),
		salt:     rand.Uint64(),
		requests: make(map[string]uint64),
	}
	s.bodies.New = func() any { return new(bytes.Buffer) }
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.start.Store(time.Now().UnixNano())
	s.SetFault(cfg.Fault)
	s.mux = s.routes()
	s.wg.Go(func() { s.engine.run(s.ctx) })
	return s, nil
}

// Start is New with a listener of its own on a free loopback port; see URL.
func Start(cfg Config) (*Server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("model server: %w", err)
	}
	s, err := New(cfg)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	s.Serve(ln)
	return s, nil
}

// Serve answers on ln, which the Server now owns, until Close. Call it at
// most once; it returns at once.
func (s *Server) Serve(ln net.Listener) {
	v := &served{
		url:  "http://" + ln.Addr().String(),
		http: &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Second},
		done: make(chan struct{}),
	}
	if s.cfg.Instant {
		v.http.IdleTimeout = 0
	}
	s.mu.Lock()
	s.served = v
	s.mu.Unlock()
	go func() {
		defer close(v.done)
		_ = v.http.Serve(ln) // always ErrServerClosed after Close
	}()
}

// URL is the address of Start's or Serve's listener; "" without one.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served == nil {
		return ""
	}
	return s.served.url
}

// Close ends every request and waits for the scheduler. Handlers that run on
// a listener of the caller's end with an error of their own; close that first.
func (s *Server) Close() error {
	s.stop(errClosed)
	s.mu.Lock()
	v := s.served
	s.mu.Unlock()
	var err error
	if v != nil {
		err = v.http.Close()
		<-v.done
	}
	s.wg.Wait()
	return err
}

// SetFault makes every later request that generates fail as f says.
func (s *Server) SetFault(f Fault) { s.fault.Store(&f) }

// Restart forgets what a restart of the process would: prefix cache, counters,
// stored responses; the start time moves on. Requests under way go on.
func (s *Server) Restart() {
	s.engine.forget()
	s.store.clear()
	// Strictly later, even when the clock's step is coarse.
	s.start.Store(max(time.Now().UnixNano(), s.start.Load()+int64(time.Second)))
}

// Stats returns the engine's counters and gauges of this moment; all zero in
// instant mode.
func (s *Server) Stats() Stats { return s.engine.snapshot() }

// Requests returns how many requests came by route: "chat", "completions",
// "messages", "responses" and so on.
func (s *Server) Requests() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return stdmaps.Clone(s.requests)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "uvicorn")
	s.mux.ServeHTTP(w, r)
}

func (s *Server) routes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	m.HandleFunc("GET /v1/models", s.models)
	m.HandleFunc("GET /metrics", s.metrics)
	m.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"version": "0.0.0+stand-in"})
	})
	m.HandleFunc("POST /v1/chat/completions", s.endpoint("chat", (*refusal).openai, s.chat))
	m.HandleFunc("POST /v1/completions", s.endpoint("completions", (*refusal).openai, s.completions))
	m.HandleFunc("POST /v1/messages", s.endpoint("messages", (*refusal).anthropic, s.messages))
	m.HandleFunc("POST /v1/messages/count_tokens", s.endpoint("count_tokens", (*refusal).anthropic, s.countTokens))
	m.HandleFunc("POST /v1/embeddings", s.endpoint("embeddings", (*refusal).openai, s.embeddings))
	m.HandleFunc("POST /v1/responses", s.endpoint("responses", (*refusal).openai, s.responses))
	m.HandleFunc("POST /v1/responses/input_tokens", s.endpoint("input_tokens", (*refusal).openai, s.inputTokens))
	m.HandleFunc("GET /v1/responses/{id}", s.responseByID)
	m.HandleFunc("DELETE /v1/responses/{id}", s.responseByID)
	m.HandleFunc("POST /v1/responses/{id}/cancel", s.responseByID)
	m.HandleFunc("GET /v1/responses/{id}/input_items", s.inputItems)
	s.conversationRoutes(m)
	m.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	return m
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID          string  `json:"id"`
		Object      string  `json:"object"`
		Created     int64   `json:"created"`
		OwnedBy     string  `json:"owned_by"`
		Root        string  `json:"root"`
		Parent      *string `json:"parent"`
		MaxModelLen int     `json:"max_model_len"`
	}
	list := make([]model, 0, len(s.cfg.Models))
	for _, name := range s.cfg.Models {
		list = append(list, model{
			ID: name, Object: "model", Created: s.created(), OwnedBy: s.cfg.Engine, Root: name, MaxModelLen: s.cfg.MaxModelLen,
		})
	}
	reply(w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

func (s *Server) created() int64 {
	if s.cfg.Created != 0 {
		return s.cfg.Created
	}
	return time.Now().Unix()
}

func (s *Server) started() float64 { return float64(s.start.Load()) / float64(time.Second) }

// count notes a request under its route.
func (s *Server) count(route string) {
	s.mu.Lock()
	s.requests[route]++
	s.mu.Unlock()
}

// reply writes v as JSON with its length, in one piece.
func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		b, status = []byte(`{}`), http.StatusInternalServerError
	}
	replyBytes(w, status, b)
}

func replyBytes(w http.ResponseWriter, status int, b []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", fmt.Sprint(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that left is noticed by its context
}

// refusal is an error answer before it has the shape of its API.
type refusal struct {
	status  int
	kind    string // OpenAI error type, as vLLM names them
	message string
	param   string
	full    bool // the queue is
}

// queueFull is what an engine says that takes no more requests, as SGLang words it.
func queueFull() *refusal {
	return &refusal{status: http.StatusServiceUnavailable, kind: "SERVICE_UNAVAILABLE", message: "The request queue is full.", full: true}
}

func refuse(status int, format string, args ...any) *refusal {
	kind := "BadRequestError"
	switch {
	case status == http.StatusNotFound:
		kind = "NotFoundError"
	case status == http.StatusTooManyRequests:
		kind = "RateLimitError"
	case status >= 500:
		kind = "InternalServerError"
	}
	return &refusal{status: status, kind: kind, message: fmt.Sprintf(format, args...)}
}

// openai writes the refusal as vLLM's OpenAI routes do.
func (f *refusal) openai(w http.ResponseWriter) {
	var param any
	if f.param != "" {
		param = f.param
	}
	reply(w, f.status, map[string]any{"error": map[string]any{
		"message": f.message, "type": f.kind, "param": param, "code": f.status,
	}})
}

// anthropic writes the refusal as the Messages API does.
func (f *refusal) anthropic(w http.ResponseWriter) {
	kind := "invalid_request_error"
	switch {
	case f.status == http.StatusNotFound:
		kind = "not_found_error"
	case f.status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case f.status >= 500:
		kind = "api_error"
	}
	reply(w, f.status, map[string]any{"type": "error", "error": map[string]any{
		"type": kind, "message": f.message,
	}})
}

// readBody reads the whole body.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body := http.MaxBytesReader(w, r.Body, maxBody)
	if n := r.ContentLength; n > 0 && n <= maxBody {
		b := make([]byte, n)
		_, err := io.ReadFull(body, b)
		return b, err
	}
	return io.ReadAll(body)
}
