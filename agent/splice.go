package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/agent/datapath"
	"github.com/tautline/tautline/agent/telemetry"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/proxy"
	"github.com/tautline/tautline/userspace/splice"
)

// kernelSide is the splice as the agent holds it.
type kernelSide struct {
	splicer *splice.Splicer
	kernel  splice.Kernel // nil when off
	status  splice.Status
}

// openKernel starts the splice as the configuration demands. In mode auto a
// machine that cannot splice is no error: the status says why.
func openKernel(ctx context.Context, cfg *config.Config) (kernelSide, error) {
	mode, err := splice.ParseMode(cfg.Splice.Mode)
	if err != nil {
		return kernelSide{}, err
	}
	p, err := spliceParams(cfg)
	if err != nil {
		return kernelSide{}, err
	}
	var k kernelSide
	k.splicer, k.kernel, k.status, err = splice.Start(ctx, mode, p, func() (splice.Kernel, error) {
		// Best effort: Open finds out whether there is one, and says what to do.
		_ = datapath.MountBPFFS(cfg.Splice.PinPath)
		d, err := datapath.Open(datapath.Options{Cgroup: cfg.Splice.Cgroup, PinPath: cfg.Splice.PinPath})
		if err != nil {
			return nil, err // not d: a nil *Datapath would be a Kernel that is not nil
		}
		return d, nil
	})
	return k, err
}

// warn tells what is out of the ordinary about a splice that is on.
func (k kernelSide) warn(log *slog.Logger) {
	d, ok := k.kernel.(*datapath.Datapath)
	if !ok {
		return
	}
	if path, whole := d.Cgroup(); !whole {
		log.Warn("servers outside of this part of the cgroup hierarchy are not spliced", "cgroup", path)
	}
	if n := d.Swept(); n > 0 {
		log.Warn("a predecessor ended without closing its connections", "flows", n)
	}
}

func spliceParams(cfg *config.Config) (splice.Params, error) {
	p := splice.Default()
	p.Credit = uint32(cfg.Splice.CreditBytes)
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("splice: %w", err)
	}
	return p, nil
}

// maps returns the kernel's maps, nil when the splice is off.
func (k kernelSide) maps() *maps.Set {
	if k.kernel == nil {
		return nil
	}
	return k.kernel.Maps()
}

func (k kernelSide) close() error {
	if k.kernel == nil {
		return nil
	}
	return k.kernel.Close()
}

// splicer is package splice behind the interface of package proxy. The two do
// not know each other.
type splicer struct{ *splice.Splicer }

func (s splicer) Begin(client, backend net.Conn, r proxy.ResponseInfo) proxy.SplicedResponse {
	return splicedResponse{s.Splicer.Begin(client, backend, splice.ResponseInfo(r))}
}

type splicedResponse struct{ *splice.Response }

func (r splicedResponse) End() error {
	if err := r.Response.End(); errors.Is(err, splice.ErrDamaged) {
		return fmt.Errorf("%w: %v", proxy.ErrDamaged, err)
	} else if err != nil {
		return err
	}
	return nil
}

// putTable writes the rows of backends that are still there; states is reused. It
// holds the lock, so that no row of a removed backend comes back.
func (a *Agent) putTable(set *maps.Set, states []decide.BackendState) ([]decide.BackendState, error) {
	var errs []error
	tau := a.fleet.Tau()
	a.mu.Lock()
	defer a.mu.Unlock()
	states = a.fleet.Snapshot(a.now(), states)
	for i := range states {
		b := &states[i]
		s, ok := a.slots[b.Slot]
		if !ok {
			continue
		}
		row := maps.Backend{
			Name: s.label, Address: s.url, Admitted: b.Admitted, Measured: b.Measured,
			Queue: uint32(max(b.Queue, 0)), InflightRequests: uint64(b.InFlight), InflightTokens: uint64(b.Uncached), Tau: uint64(tau),
		}
		for _, n := range b.Picks {
			row.Picks += n
		}
		errs = append(errs, set.PutBackend(s.number, row))
	}
	return states, errors.Join(errs...)
}

// spliceStatus is the splice for /v1/status.
func (a *Agent) spliceStatus() telemetry.SpliceStatus {
	st := a.kernel.status
	s := telemetry.SpliceStatus{Mode: string(st.Mode), State: "off", Reason: st.Reason, Outcomes: map[string]uint64{}}
	if st.On {
		s.State = "on"
	}
	a.kernel.splicer.Counts(func(res splice.Result, why splice.Reason, n uint64) {
		if n > 0 {
			s.Outcomes[res.String()+"/"+why.String()] += n
		}
	})
	return s
}

// The agent is the telemetry.SpliceSource of itself.

// SpliceOn implements telemetry.SpliceSource.
func (a *Agent) SpliceOn() (on bool, reason string) {
	return a.kernel.status.On, a.kernel.status.Reason
}

// SpliceCounts implements telemetry.SpliceSource.
func (a *Agent) SpliceCounts(f func(result, reason string, n uint64)) {
	a.kernel.splicer.Counts(func(res splice.Result, why splice.Reason, n uint64) { f(res.String(), why.String(), n) })
}

// SpliceBackends implements telemetry.SpliceSource.
func (a *Agent) SpliceBackends(f func(label string, id uint32)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.slots {
		f(s.label, s.number)
	}
}

// SpliceMaps implements telemetry.SpliceSource.
func (a *Agent) SpliceMaps() *maps.Set { return a.kernel.maps() }
