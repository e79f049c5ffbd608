package bench

import (
	"context"
	"slices"
	"time"

	"github.com/tautline/tautline/tools/bench/load"
	"github.com/tautline/tautline/tools/bench/peers"
	"github.com/tautline/tautline/tools/bench/report"
	"github.com/tautline/tautline/tools/bench/stream"
)

// settle is how long a load runs before it is measured.
const settle = 300 * time.Millisecond

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// window runs a settled load for d and returns what was used meanwhile.
func (b *bench) window(ctx context.Context, p *peers.Peer, d time.Duration, open func(bool)) (used, error) {
	if err := sleep(ctx, settle); err != nil {
		return used{}, err
	}
	before, err := b.read(p)
	if err != nil {
		return used{}, err
	}
	open(true)
	err = sleep(ctx, d)
	open(false)
	if err != nil {
		return used{}, err
	}
	after, err := b.read(p)
	return after.since(before), err
}

// runFleet runs n clients through p with a window of d between. What goes wrong
// with the router is in the books; an error ends the run.
func (b *bench) runFleet(ctx context.Context, p *peers.Peer, f *fleet, n int, d time.Duration) (u used, sum member, err error) {
	fctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.addr = p.Addr
	b.startFleet(fctx, f, n)
	werr := f.await(fctx)
	if werr == nil {
		u, werr = b.window(fctx, p, d, f.open.Store)
	}
	sum, err = f.finish(cancel)
	if ctx.Err() != nil {
		return u, sum, ctx.Err()
	}
	if werr != nil {
		sum.failed++
		sum.first = werr.Error()
	}
	return u, sum, err
}

// streams measures one round of paced streams.
func (b *bench) streams(ctx context.Context, p *peers.Peer) (report.StreamRound, error) {
	was, tells, err := p.Spliced(ctx)
	if err != nil {
		tells = false // the round itself will show whether the agent is ill
	}
	room := int(b.Rate*b.Duration.Seconds()*1.25) + 16
	f := &fleet{readyAt: 1, room: room, spec: func(client, turn int) stream.Spec {
		s := stream.Spec{Tokens: b.Tokens, Bytes: b.ChunkBytes, Every: b.every(), Spread: b.Spread}
		if turn == 0 { // so that not all responses end in the same moment
			s.Tokens = 1 + client*b.Tokens/b.Streams
		}
		return s
	}}
	u, sum, err := b.runFleet(ctx, p, f, b.Streams, b.Duration)
	if err != nil {
		return report.StreamRound{}, err
	}
	n := len(sum.latencies)
	r := report.StreamRound{
		P50: at(sum.latencies, 0.50), P90: at(sum.latencies, 0.90),
		P99: at(sum.latencies, 0.99), Max: at(sum.latencies, 1),
		Chunks: n, Answers: sum.answers,
		RouterCPU:  u.ofRouter(per(u.router.CPU, n)),
		ServerCPU:  per(u.server.CPU, n),
		ClientCPU:  per(u.client.CPU, n),
		MachineCPU: per(u.machine.Busy, n),
		Busy:       u.busy(), Stolen: u.stolen(),
		Switches:    u.ofRouter(perCount(u.router.Switches, sum.answers)),
		Preemptions: u.ofRouter(perCount(u.router.Preemptions, sum.answers)),
		RSS:         u.rss(),
		AllChunks:   sum.all, AllResponses: sum.responses,
		Faults: sum.faults, Failed: sum.failed, First: sum.first,
	}
	if u.span > 0 {
		r.PerSec = float64(n) / u.span.Seconds()
	}
	if is, ok, err := p.Spliced(ctx); tells && ok && err == nil {
		d := is.Sub(was)
		r.SplicedResponses = d.Responses
		if sum.tailWire > 0 {
			r.Spliced = report.Of(d.Bytes / float64(sum.tailWire))
		}
	}
	return r, nil
}

// ttft measures the time to first token of few streams with large bodies. The
// responses are short and the machine is far from busy.
func (b *bench) ttft(ctx context.Context, p *peers.Peer) (report.TTFTRound, error) {
	f := &fleet{readyAt: 1, body: b.BodyBytes, spec: func(client, turn int) stream.Spec {
		return stream.Spec{Tokens: 5 + (client+turn)%10, Bytes: b.ChunkBytes, Every: b.every(), Spread: true}
	}}
	_, sum, err := b.runFleet(ctx, p, f, b.TTFTStreams, b.LoadDuration)
	if err != nil {
		return report.TTFTRound{}, err
	}
	r := report.TTFTRound{
		P50: at(sum.ttft, 0.50), P99: at(sum.ttft, 0.99), Requests: len(sum.ttft),
		Failed: sum.failed, First: sum.first,
	}
	if sum.faults.Any() {
		r.Failed++
	}
	return r, nil
}

// idle measures what open, silent streams cost in memory, and in CPU.
func (b *bench) idle(ctx context.Context, p *peers.Peer) (report.Idle, error) {
	const silence = time.Second
	before, err := b.read(p)
	if err != nil {
		return report.Idle{Failed: 1, First: err.Error()}, nil
	}
	// A few tokens first, so that an agent has spliced what it splices.
	const tokens = 5
	f := &fleet{readyAt: tokens, spec: func(int, int) stream.Spec {
		return stream.Spec{Tokens: 1 << 20, Hold: tokens, Bytes: b.ChunkBytes, Every: b.every(), Spread: true}
	}}
	u, sum, err := b.runFleet(ctx, p, f, b.IdleStreams, silence)
	if err != nil {
		return report.Idle{}, err
	}
	r := report.Idle{Streams: b.IdleStreams, Failed: sum.failed, First: sum.first, Seconds: u.span.Seconds()}
	if sum.faults.Any() {
		r.Failed++
	}
	if u.hasRouter {
		r.Before = report.Of(float64(before.router.RSS))
		r.With = u.rss()
		r.PerStream = report.Of(float64(u.router.RSS-before.router.RSS) / float64(b.IdleStreams))
		r.CPU = report.Of(u.router.CPU.Seconds() / u.span.Seconds())
	}
	return r, nil
}

// requests measures large bodies that are answered at once, in a closed loop.
func (b *bench) requests(ctx context.Context, p *peers.Peer) (report.RequestRound, error) {
	c := load.NewClient("http://"+p.Addr, b.Concurrency)
	defer c.Close()
	bodies := make([][]byte, b.Concurrency)
	for i := range bodies {
		bodies[i] = stream.Spec{Stream: uint32(i), Bytes: stream.MinBytes, Every: 1}.Body(b.BodyBytes)
	}
	var l loop
	lctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		load.Closed(lctx, c, b.Concurrency, func(client, _ int) (load.Request, bool) {
			return load.Request{Path: "/v1/chat/completions", Body: bodies[client]}, true
		}, l.done)
	}()
	u, err := b.window(ctx, p, b.LoadDuration, l.open.Store)
	cancel()
	<-ended
	if ctx.Err() != nil {
		return report.RequestRound{}, ctx.Err()
	}
	if err != nil {
		return report.RequestRound{Failed: 1, First: err.Error()}, nil
	}
	slices.Sort(l.totals)
	n := len(l.totals)
	return report.RequestRound{
		PerSec: float64(n) / u.span.Seconds(), P50: at(l.totals, 0.50), P99: at(l.totals, 0.99), Requests: n,
		RouterCPU: u.ofRouter(per(u.router.CPU, n)), MachineCPU: per(u.machine.Busy, n), Busy: u.busy(), RSS: u.rss(),
		Failed: l.failed, First: l.first,
	}, nil
}
