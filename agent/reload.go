package agent

import (
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/poll"
	"github.com/tautline/tautline/userspace/proxy"
)

// Reload takes a new configuration into use without dropping a request. On an
// error the old one stays, whole. Settings that need a restart are an error
// that names them.
func (a *Agent) Reload(cfg *config.Config) error {
	a.mu.Lock()
	old := a.cfg
	a.mu.Unlock()
	if names := needRestart(old, cfg); len(names) > 0 {
		return fmt.Errorf("a restart is needed to change %s", strings.Join(names, ", "))
	}
	dp, err := cfg.Decide()
	if err != nil {
		return err
	}
	ip, err := cfg.Index()
	if err != nil {
		return err
	}
	tagger, err := loadTagger(cfg)
	if err != nil {
		return err
	}
	if err := distinct(cfg); err != nil {
		return err
	}
	if err := pollParams(cfg).Validate(); err != nil {
		return err
	}
	var cert *tls.Certificate
	if cfg.TLS.CertFile != "" {
		if cert, err = loadCertificate(cfg.TLS); err != nil {
			return err
		}
	}
	// Nothing was changed up to here, and from here on nothing is in the way.
	if err := errors.Join(a.proxy.SetParams(cfg.Proxy()), a.poller.SetParams(pollParams(cfg))); err != nil {
		return err
	}
	a.cert.current.Store(cert)
	a.fleet.SetParams(dp)
	a.fleet.SetIndexParams(ip)
	a.fleet.SetLoadParams(cfg.Load())
	if a.opts.Level != nil {
		a.opts.Level.Set(cfg.Log.SlogLevel())
	}
	a.mu.Lock()
	a.cfg, a.tagger = cfg, tagger
	a.mu.Unlock()
	return a.setBackends(cfg)
}

// needRestart names the settings that differ and cannot change while running.
func needRestart(old, cfg *config.Config) (names []string) {
	for name, pair := range map[string][2]any{
		"site":                          {old.Site, cfg.Site},
		"listen":                        {old.Listen, cfg.Listen},
		"tls":                           {old.TLS.CertFile == "", cfg.TLS.CertFile == ""},
		"admin":                         {old.Admin, cfg.Admin},
		"pprof":                         {old.Pprof, cfg.Pprof},
		"splice":                        {old.Splice, cfg.Splice},
		"prefix_affinity.enabled":       {old.PrefixAffinity.Enabled, cfg.PrefixAffinity.Enabled},
		"prefix_affinity.hash_key_path": {old.PrefixAffinity.HashKeyPath, cfg.PrefixAffinity.HashKeyPath},
		"prefix_affinity.token_arrays":  {old.PrefixAffinity.TokenArrays, cfg.PrefixAffinity.TokenArrays},
		"timeouts.request_head":         {old.Timeouts.RequestHead, cfg.Timeouts.RequestHead},
		"timeouts.keep_alive":           {old.Timeouts.KeepAlive, cfg.Timeouts.KeepAlive},
		"log.format":                    {old.Log.Format, cfg.Log.Format},
	} {
		if pair[0] != pair[1] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// setBackends adds, removes and replaces backends so that they are those of
// cfg. One that did not change keeps its slot, memory and accounts. Those that are new
// come before others leave, so that there is no instant without any.
func (a *Agent) setBackends(cfg *config.Config) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	want := map[string]config.Backend{}
	for _, b := range cfg.Backends {
		want[b.Site+"/"+b.Name] = b
	}
	var leave []member
	for id, m := range a.members {
		if b, ok := want[id]; !ok || !reflect.DeepEqual(b, m.cfg) {
			leave = append(leave, m)
			delete(a.members, id)
			a.poller.Remove(m.slot) // one that follows may have its name
		}
	}
	var errs []error
	for _, b := range cfg.Backends {
		if _, ok := a.members[b.Site+"/"+b.Name]; !ok {
			errs = append(errs, a.addBackend(b))
		}
	}
	// Before slots are free: ids of those that leave must not find whoever gets them.
	errs = append(errs, a.pins.set(cfg.Site, a.tagger, a.members, a.label))
	for _, m := range leave {
		a.removeBackend(m)
	}
	return errors.Join(errs...)
}

// addBackend makes a backend known. A request that is routed to it before the
// proxy knows it is retried, like one whose backend was removed.
func (a *Agent) addBackend(b config.Backend) error {
	spec := decide.Spec{Site: b.Site, Name: b.Name, Models: b.Models}
	label := a.label(spec)
	slot := a.fleet.Add(spec)
	number := a.numbers
	a.numbers++
	if err := a.proxy.AddBackend(slot, proxy.Backend{Name: label, URL: b.URL, Site: b.Site, Number: number}); err != nil {
		a.fleet.Remove(slot)
		return err
	}
	if err := a.poller.Add(poll.Target{Slot: slot, Name: label, URL: b.URL, Engine: a.engine(b), Models: b.Models}); err != nil {
		a.proxy.RemoveBackend(slot)
		a.fleet.Remove(slot)
		return err
	}
	a.recorder.Add(label)
	a.members[b.Site+"/"+b.Name] = member{slot, b}
	a.slots[slot] = shown{label, b.URL, number}
	a.log.Info("backend added", "backend", label, "url", b.URL)
	return nil
}

// removeBackend takes a backend away that is no member and not polled any more. One that
// is replaced by another of its name leaves its series to that.
func (a *Agent) removeBackend(m member) {
	a.fleet.Remove(m.slot)
	a.proxy.RemoveBackend(m.slot)
	gone := a.slots[m.slot]
	delete(a.slots, m.slot)
	if _, replaced := a.members[m.cfg.Site+"/"+m.cfg.Name]; !replaced {
		a.recorder.Forget(gone.label)
	}
	if set := a.kernel.maps(); set != nil {
		if err := set.DeleteBackend(gone.number); err != nil {
			a.log.Warn("row of a removed backend stays in the kernel", "backend", gone.label, "err", err)
		}
	}
	a.log.Info("backend removed", "backend", gone.label)
}

// certificate is the server's certificate, renewed by reloads.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
}

func loadCertificate(t config.TLS) (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	return &cert, nil
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}
