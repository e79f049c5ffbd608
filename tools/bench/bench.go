// Package bench compares ways from a client to a model server, side by side in
// one run: none, tautline's agent with and without its splice, nginx, HAProxy
// and commands of the user's. Server, router and client are processes of their
// own on loopback; the paths take turns in short rounds, so that what else the
// machine does hits all of them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/tools/bench/peers"
	"github.com/tautline/tautline/tools/bench/report"
	"github.com/tautline/tautline/tools/bench/stream"
)

// Run measures what o asks for. It leaves no process and no file behind, also
// when ctx ends early. The report tells what was wrong with the streams; the
// error tells why there is no report.
func Run(ctx context.Context, o Options) (_ *report.Report, err error) {
	kinds, err := o.kinds()
	if err != nil {
		return nil, err
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := raiseLimit(uint64(2*o.conns() + 512)); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tautline-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	o.logf("starting the stream server")
	server, err := stream.Start(ctx, o.Server, o.ServerThreads)
	if err != nil {
		return nil, err
	}
	defer server.Close()

	b := &bench{Options: o, clock: stream.NewClock(), server: server}
	b.report = &report.Report{Host: host(), Settings: o.settings(), Skipped: []report.Skipped{}}
	defer func() { err = errors.Join(err, b.stopPeers()) }()
	env := peers.Env{Upstream: server.Addr, Dir: dir, Conns: o.conns() + 64, Self: o.Self}
	for _, k := range kinds {
		if err := b.startPeer(ctx, k, env); err != nil {
			return nil, err
		}
	}
	h, err := startHogs(ctx, o.Hog, o.Hogs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.stop()) }()
	if err := b.rounds(ctx); err != nil {
		return nil, err
	}
	b.report.Summarize()
	return b.report, nil
}

// bench is one run. Its paths and the report's Paths go in step.
type bench struct {
	Options
	clock  stream.Clock
	server *stream.Process
	report *report.Report
	peers  []*peers.Peer
	mark   uint32 // the next client's part of a watermark
}

// startPeer starts a path, or notes why it is left out.
func (b *bench) startPeer(ctx context.Context, k peers.Kind, env peers.Env) error {
	b.logf("starting %s", k.Name)
	p, err := k.Start(ctx, env)
	switch {
	case err == nil:
		b.peers = append(b.peers, p)
		b.report.Paths = append(b.report.Paths, report.Path{Name: k.Name, About: k.About})
	case ctx.Err() != nil:
		return ctx.Err()
	case len(b.Paths) > 0 && !errors.Is(err, peers.ErrAbsent):
		return err // asked for by name, here, and does not start
	default:
		b.logf("%v", err)
		b.report.Skipped = append(b.report.Skipped, report.Skipped{Name: k.Name, Why: strings.TrimPrefix(err.Error(), k.Name+": ")})
	}
	return nil
}

func (b *bench) stopPeers() error {
	var errs []error
	for _, p := range b.peers {
		if err := p.Stop(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// rounds measures. Idle streams come first, while the routers are fresh: large
// bodies leave buffers behind that would hide what a stream costs. Every round
// begins with another path.
func (b *bench) rounds(ctx context.Context) error {
	if b.has("idle") {
		for i, p := range b.peers {
			b.logf("%s: %d silent streams", p.Name, b.IdleStreams)
			r, err := b.idle(ctx, p)
			if err != nil {
				return err
			}
			b.report.Paths[i].Idle = &r
		}
	}
	for round := range b.Rounds {
		for _, phase := range []struct {
			name    string
			measure func(context.Context, int) error
		}{{"streams", b.streamRound}, {"requests", b.requestRound}, {"ttft", b.ttftRound}} {
			if !b.has(phase.name) {
				continue
			}
			for i := range b.peers {
				at := (i + round) % len(b.peers)
				b.logf("round %d of %d: %s: %s", round+1, b.Rounds, phase.name, b.peers[at].Name)
				if err := phase.measure(ctx, at); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *bench) streamRound(ctx context.Context, at int) error {
	r, err := b.streams(ctx, b.peers[at])
	if err != nil {
		return err
	}
	path := &b.report.Paths[at]
	path.Streams = append(path.Streams, r)
	return nil
}

func (b *bench) requestRound(ctx context.Context, at int) error {
	r, err := b.requests(ctx, b.peers[at])
	if err != nil {
		return err
	}
	path := &b.report.Paths[at]
	path.Requests = append(path.Requests, r)
	return nil
}

func (b *bench) ttftRound(ctx context.Context, at int) error {
	r, err := b.ttft(ctx, b.peers[at])
	if err != nil {
		return err
	}
	path := &b.report.Paths[at]
	path.TTFT = append(path.TTFT, r)
	return nil
}

// raiseLimit makes room for so many descriptors in this process and its children.
func raiseLimit(need uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	want := syscall.Rlimit{Cur: max(need, l.Max), Max: max(need, l.Max)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want); err == nil {
		return nil
	}
	if l.Max < need {
		return fmt.Errorf("%d open files are needed, the limit is %d: ask for fewer streams, or raise it (ulimit -n)", need, l.Max)
	}
	l.Cur = l.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}

func host() report.Host {
	h := report.Host{CPUs: runtime.NumCPU(), Go: runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return h
}
