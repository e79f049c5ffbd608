package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
)

// Router chooses backends and keeps the accounts. *decide.Fleet is one.
type Router interface {
	Route(r decide.Request, now decide.Instant) (decide.Ticket, decide.Decision)
	decide.Asker // about those that are held
	ConnectFailed(slot int, now decide.Instant)
	Status(slot, code int, now decide.Instant)
	Unlearned(model string) bool
}

// Options are what a Proxy is made of. Params, Router and Hasher are required.
type Options struct {
	Params   Params
	Router   Router
	Hasher   *key.Hasher
	Splicer  Splicer      // nil = NoSplice
	Pinner   Pinner       // nil = NoPin
	Recorder Recorder     // nil = NoRecorder
	Log      *slog.Logger // nil = silent
	// Page returns what answers a request here instead of a backend, as far as
	// AllowedPaths has its path; nil = a backend does. Such a request is not counted.
	Page func(r *http.Request) http.Handler
	// RefusesInside tells whether the engine in a slot may refuse a streamed prompt
	// inside an answer that begins with 200, as SGLang does; nil = none does.
	RefusesInside func(slot int) bool
	// Clock is the monotonic time that the Router is given; nil = time since New.
	Clock func() decide.Instant
}

// Proxy is the data path: an HTTP/1.1 server over a set of backends. All methods
// may be called concurrently.
type Proxy struct {
	router   Router
	splicer  Splicer
	pinner   Pinner
	recorder Recorder
	log      *slog.Logger
	clock    func() decide.Instant

	page          func(r *http.Request) http.Handler
	refusesInside func(slot int) bool
	pseudonym     string // of this process, in Via fields

	params   atomic.Pointer[Params]
	hasher   atomic.Pointer[key.Hasher]
	backends atomic.Pointer[[]*backend]

	server  *http.Server
	base    context.Context // parent of every request; cancelled when a drain's time is over
	abort   context.CancelCauseFunc
	active  atomic.Int64 // handlers that run
	holding holding

	bodies  buffers
	prompts sync.Pool // *key.Prompt
	reads   sync.Pool // *[]byte of readBytes
	windows sync.Pool // *usageWindow

	mu sync.Mutex // guards changes of backends
}

const (
	// readBytes is the size of one read of a backend's answer.
	readBytes = 32 << 10
	// streamBytes is that of a stream until one read fills it.
	streamBytes = 2 << 10
	// maxRequestHead bounds a client's request head: 431 beyond it.
	maxRequestHead = 128 << 10
)

// errDrain is the cause of requests that end because the drain's time is over.
var errDrain = errors.New("shutting down")

// New returns a Proxy without backends. It starts no goroutine and opens nothing.
func New(o Options) (*Proxy, error) {
	if err := o.Params.Validate(); err != nil {
		return nil, err
	}
	if o.Router == nil || o.Hasher == nil {
		return nil, errors.New("proxy: Router and Hasher are required")
	}
	p := &Proxy{
		router:   o.Router,
		splicer:  o.Splicer,
		pinner:   o.Pinner,
		recorder: o.Recorder,
		log:      o.Log,
		clock:    o.Clock,

		page:          o.Page,
		refusesInside: o.RefusesInside,
		pseudonym:     pseudonym(o.Params.Site),
	}
	if p.refusesInside == nil {
		p.refusesInside = func(int) bool { return false }
	}
	if p.page == nil {
		p.page = func(*http.Request) http.Handler { return nil }
	}
	if p.splicer == nil {
		p.splicer = NoSplice{}
	}
	if p.pinner == nil {
		p.pinner = NoPin{}
	}
	if p.recorder == nil {
		p.recorder = NoRecorder{}
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.clock == nil {
		start := time.Now()
		p.clock = func() decide.Instant { return time.Since(start) }
	}
	p.prompts.New = func() any { return new(key.Prompt) }
	p.reads.New = func() any { b := make([]byte, readBytes); return &b }
	p.windows.New = func() any { return new(usageWindow) }
	p.holding.p, p.holding.wakes = p, make(chan struct{}, 1)
	p.params.Store(&o.Params)
	p.hasher.Store(o.Hasher)
	p.backends.Store(new([]*backend))
	p.base, p.abort = context.WithCancelCause(context.Background())
	p.server = &http.Server{
		Handler:           p,
		ReadHeaderTimeout: o.Params.Timeouts.Header,
		IdleTimeout:       o.Params.Timeouts.KeepAlive,
		MaxHeaderBytes:    maxRequestHead,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return p.base },
		ConnContext:       withClientConn,
		Protocols:         new(http.Protocols),
	}
	p.server.Protocols.SetHTTP1(true)
	return p, nil
}

// SetParams changes the settings for requests that begin from now on, and for how long
// those are held that are held now. Timeouts.Header and Timeouts.KeepAlive keep their
// first value.
func (p *Proxy) SetParams(params Params) error {
	if err := params.Validate(); err != nil {
		return err
	}
	p.params.Store(&params)
	p.holding.wake()
	return nil
}

// SetHasher changes how prompts are keyed. Keys of different hashers do not match.
func (p *Proxy) SetHasher(h *key.Hasher) { p.hasher.Store(h) }

// Active returns the number of requests being served.
func (p *Proxy) Active() int64 { return p.active.Load() }

// BodyBytes returns the bytes of request bodies held in memory.
func (p *Proxy) BodyBytes() int64 { return p.bodies.used.Load() }

// Listen opens a TCP listener for Serve. Go's default would be MPTCP, whose
// sockets no kernel splice takes.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(ctx, "tcp", addr)
}

// Serve accepts clients until Shutdown, then returns nil. With a tls.Config the
// listener speaks TLS; its GetCertificate may renew certificates. Serve may be
// called for several listeners. It closes ln.
func (p *Proxy) Serve(ln net.Listener, tc *tls.Config) error {
	ln = p.splicer.WrapListener(ln)
	if tc != nil {
		tc = tc.Clone()
		tc.NextProtos = []string{"http/1.1"}
		ln = tls.NewListener(ln, tc)
	}
	if err := p.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown drains: it stops accepting at once, closes idle connections, sends what is
// held, lets requests that run finish until ctx is done, then aborts those that are left.
// It returns when no handler runs and no connection is open; the error is that
// of ctx when requests had to be aborted.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.holding.close()
	err := p.server.Shutdown(ctx)
	p.abort(errDrain)
	if err != nil {
		// Let them answer or reset by themselves. A handler that has returned is not
		// enough: the server still has its answer in a buffer.
		grace, cancel := context.WithTimeout(context.Background(), abortGrace)
		_ = p.server.Shutdown(grace)
		cancel()
		_ = p.server.Close() // the listeners are closed already; nothing new to report
	}
	p.waitIdle()
	p.holding.runs.Wait()
	for _, b := range *p.backends.Load() {
		if b != nil {
			b.transport.Close()
		}
	}
	return err
}

// abortGrace is how long aborted requests may take to answer before their
// connections are closed under them.
const abortGrace = 200 * time.Millisecond

// waitIdle waits until no handler runs. Once their contexts and connections are
// gone, handlers end by themselves.
func (p *Proxy) waitIdle() {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for p.active.Load() > 0 {
		<-tick.C
	}
}

type clientConnKey struct{}

func withClientConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, clientConnKey{}, c)
}

// clientConn returns the connection that a request came on; nil outside a server.
func clientConn(r *http.Request) net.Conn {
	c, _ := r.Context().Value(clientConnKey{}).(net.Conn)
	return c
}
