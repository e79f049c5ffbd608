package report

import "github.com/tautline/tautline/tools/bench/stream"

// faults adds up a path's rounds.
func (p *Path) faults() (sum stream.Faults) {
	for _, s := range p.Streams {
		sum.Add(s.Faults)
	}
	return sum
}

// failures counts what failed in any phase and tells what came first.
func (p *Path) failures() (n int, first string) {
	add := func(failed int, text string) {
		n += failed
		if first == "" {
			first = text
		}
	}
	for _, s := range p.Streams {
		add(s.Failed, s.First)
	}
	for _, q := range p.Requests {
		add(q.Failed, q.First)
	}
	for _, t := range p.TTFT {
		add(t.Failed, t.First)
	}
	if p.Idle != nil {
		add(p.Idle.Failed, p.Idle.First)
	}
	return n, first
}
