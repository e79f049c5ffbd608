// Package agent wires the rooms together and gives them a life: start in
// order, reload, drain, stop in reverse.
package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/agent/telemetry"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/key"
	"github.com/tautline/tautline/userspace/pin"
	"github.com/tautline/tautline/userspace/poll"
	"github.com/tautline/tautline/userspace/proxy"
	"github.com/tautline/tautline/userspace/splice"
)

// Options are what an Agent is given beside its configuration.
type Options struct {
	Version string
	Log     *slog.Logger
	Level   *slog.LevelVar // of Log, so that a reload can change it; nil = fixed
}

// Agent is one running agent. New opens it, Run serves, and both its listeners
// are open in between, so their addresses are known.
type Agent struct {
	opts  Options
	log   *slog.Logger
	start time.Time
	site  string // a reload cannot change it

	fleet    fleet
	hasher   *key.Hasher
	proxy    *proxy.Proxy
	poller   *poll.Poller
	recorder *telemetry.Recorder
	registry *prometheus.Registry
	admin    *telemetry.Admin // nil when off
	listener net.Listener
	tls      *tls.Config // nil = plain
	cert     certificate
	kernel   kernelSide
	pins     pinner
	draining atomic.Bool

	mu      sync.Mutex // guards what a reload changes
	cfg     *config.Config
	members map[string]member // by site/name
	slots   map[int]shown     // by slot
	numbers uint32            // given to backends so far
	tagger  *pin.Tagger
}

// member is a backend that the agent routes to.
type member struct {
	slot int
	cfg  config.Backend
}

// shown is how a backend appears in metrics, status and kernel. Its number there
// is never given again, unlike its slot: what the kernel still carries on
// connections of a removed backend is then nobody's, instead of its successor's.
type shown struct {
	label, url string
	number     uint32
}

// New opens an agent: listeners, backends, polls. Nothing is accepted until Run,
// which must follow, or Close.
func New(ctx context.Context, cfg *config.Config, o Options) (*Agent, error) {
	a := &Agent{
		opts: o, log: o.Log, start: time.Now(), cfg: cfg,
		site: cfg.Site, members: map[string]member{}, slots: map[int]shown{},
		registry: prometheus.NewRegistry(),
	}
	if err := a.open(ctx, cfg); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// now is the clock of everything pure: monotonic, since the agent's start.
func (a *Agent) now() decide.Instant { return time.Since(a.start) }

func (a *Agent) open(ctx context.Context, cfg *config.Config) error {
	dp, err := cfg.Decide()
	if err != nil {
		return err
	}
	ip, err := cfg.Index()
	if err != nil {
		return err
	}
	if a.hasher, err = newHasher(cfg); err != nil {
		return err
	}
	a.recorder = telemetry.NewRecorder(a.registry)
	if a.kernel, err = openKernel(ctx, cfg); err != nil {
		return err
	}
	a.fleet = fleet{
		decide.NewFleet(dp, ip, cfg.Load(), mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64()))),
		a.kernel.splicer,
	}
	if st := a.kernel.status; st.On {
		a.log.Info("splice on: the kernel carries streams")
		a.kernel.warn(a.log)
	} else if st.Mode != splice.ModeOff {
		a.log.Warn("splice off: streams pass through the agent", "reason", st.Reason)
	}
	a.pins.fleet, a.pins.now = a.fleet.Fleet, a.now
	if a.tagger, err = loadTagger(cfg); err != nil {
		return err
	}
	if !a.tagger.Keyed() {
		a.log.Warn("ids of stored responses are not signed: set prefix_affinity.tag_key_path in production")
	}
	a.proxy, err = proxy.New(proxy.Options{
		Params: cfg.Proxy(), Router: a.fleet, Hasher: a.hasher, Splicer: splicer{a.kernel.splicer}, Pinner: &a.pins,
		Recorder: a.recorder, Log: a.log, Clock: a.now,
		Page:          a.page,
		RefusesInside: func(slot int) bool { return a.poller.Engine(slot) == poll.SGLang },
	})
	if err != nil {
		return err
	}
	if a.poller, err = poll.New(pollParams(cfg), polls{a.fleet, a.proxy.Wake}, a.now); err != nil {
		return err
	}
	a.registry.MustRegister(
		telemetry.NewCollector(a.fleet, a.now, a.label),
		telemetry.NewPollCollector(a.pollStatus),
		telemetry.NewSpliceCollector(a),
		telemetry.NewPinCollector(a.pins.counts),
		telemetry.NewHeldGauge(a.proxy.Held),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	if cfg.TLS.CertFile != "" {
		cert, err := loadCertificate(cfg.TLS)
		if err != nil {
			return err
		}
		a.cert.current.Store(cert)
		a.tls = &tls.Config{GetCertificate: a.cert.get, MinVersion: tls.VersionTLS12}
	}
	if a.listener, err = proxy.Listen(ctx, cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if cfg.Admin != "" {
		a.admin, err = telemetry.ListenAdmin(cfg.Admin, telemetry.AdminOptions{
			Source: a, Gatherer: a.registry, Pprof: cfg.Pprof, MaxBodyBytes: cfg.MaxBodyBytes,
		})
		if err != nil {
			return fmt.Errorf("admin: %w", err)
		}
	}
	return a.setBackends(cfg)
}

// pollParams returns the settings of the poller.
func pollParams(cfg *config.Config) poll.Params {
	p := poll.Default()
	p.Interval, p.Timeout = cfg.Poll.Interval, cfg.Poll.Timeout
	p.Refresh = max(p.Refresh, p.Interval)
	return p
}

// minKeyBytes is the least that a key file must hold.
const minKeyBytes = 32

// newHasher keys prompts with the file's content, or with a secret of this
// process.
func newHasher(cfg *config.Config) (*key.Hasher, error) {
	var secret [32]byte
	if path := cfg.PrefixAffinity.HashKeyPath; path != "" {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("prefix_affinity.hash_key_path: %w", err)
		}
		if len(raw) < minKeyBytes {
			return nil, fmt.Errorf("prefix_affinity.hash_key_path: %s holds %d bytes, want at least %d", path, len(raw), minKeyBytes)
		}
		secret = sha256.Sum256(raw)
	} else if _, err := rand.Read(secret[:]); err != nil {
		return nil, err
	}
	return key.NewHasher(secret, key.Options{
		TokenArrays: cfg.PrefixAffinity.TokenArrays,
		Disabled:    !cfg.PrefixAffinity.Enabled,
	}), nil
}

// Addr is where clients connect.
func (a *Agent) Addr() string { return a.listener.Addr().String() }

// AdminAddr is where operators connect; "" when the admin listener is off.
func (a *Agent) AdminAddr() string {
	if a.admin == nil {
		return ""
	}
	return a.admin.Addr()
}

// Run serves until ctx is done, then drains: it stops accepting, lets answers
// finish for drain_timeout, aborts the rest, and stops everything. It returns
// nil when nothing had to be aborted.
func (a *Agent) Run(ctx context.Context) error {
	defer a.Close()
	failed := make(chan error, 2)
	var wg sync.WaitGroup
	wg.Go(func() { failed <- a.proxy.Serve(a.listener, a.tls) })
	if a.admin != nil {
		wg.Go(func() { failed <- a.admin.Serve() })
	}
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	wg.Go(func() { a.watch(watching) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	a.draining.Store(true)
	a.log.Info("draining", "active", a.proxy.Active(), "timeout", a.config().DrainTimeout)
	drain, cancel := context.WithTimeout(context.Background(), a.config().DrainTimeout)
	defer cancel()
	if e := a.proxy.Shutdown(drain); e != nil {
		err = errors.Join(err, fmt.Errorf("drain: answers were cut off: %w", e))
	}
	if a.admin != nil {
		stop, cancel := context.WithTimeout(context.Background(), time.Second)
		err = errors.Join(err, a.admin.Shutdown(stop))
		cancel()
	}
	stopWatching()
	wg.Wait()
	return err
}

// Close frees what New opened, the kernel's side last. It is for agents that
// never ran; Run calls it.
func (a *Agent) Close() {
	defer func() {
		if err := a.kernel.close(); err != nil {
			a.log.Warn("kernel side not cleaned up", "err", err)
		}
	}()
	if a.poller != nil {
		a.poller.Close()
	}
	if a.listener != nil {
		a.listener.Close()
	}
	if a.admin != nil {
		stop, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = a.admin.Shutdown(stop)
	}
}

func (a *Agent) config() *config.Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cfg
}
