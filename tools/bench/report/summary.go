package report

import "slices"

// Row condenses a path: medians over the rounds. What compares two paths is
// first computed within each round, where both felt the same noise, and then
// its median is taken.
type Row struct {
	Path string `json:"path"`

	P50        Value `json:"p50_us"`
	P90        Value `json:"p90_us"`
	P99        Value `json:"p99_us"`
	Max        Value `json:"max_us"`       // of all rounds
	AddedP50   Value `json:"added_p50_us"` // against direct
	RouterCPU  Value `json:"router_cpu_us_per_chunk"`
	ServerCPU  Value `json:"server_cpu_us_per_chunk"`
	MachineCPU Value `json:"machine_cpu_us_per_chunk"`
	Busy       Value `json:"machine_busy"`
	PerSec     Value `json:"chunks_per_second"`
	Switches   Value `json:"switches_per_response"`
	Spliced    Value `json:"spliced_share"`

	// Against the reference router (nginx, else HAProxy); 1 = the same.
	CPURatio   Value `json:"router_cpu_ratio"`
	AddedRatio Value `json:"added_p50_ratio"`
	P99Ratio   Value `json:"p99_ratio"`

	Requests      Value `json:"requests_per_second"`
	RequestP50    Value `json:"request_p50_us"`
	RequestP99    Value `json:"request_p99_us"`
	RequestCPU    Value `json:"router_cpu_us_per_request"`
	TTFT          Value `json:"ttft_p50_us"`
	TTFTP99       Value `json:"ttft_p99_us"`
	AddedTTFT     Value `json:"added_ttft_p50_us"`
	PerIdleStream Value `json:"router_rss_per_idle_stream_bytes"`
	RSS           Value `json:"router_rss_bytes"` // before any stream
}

// Reference is the path that ratios are taken against, "" when there is none.
func (r *Report) Reference() string {
	for _, name := range []string{"nginx", "nginx1", "haproxy", "haproxy1"} {
		if r.Path(name) != nil {
			return name
		}
	}
	return ""
}

// Summarize fills r.Summary, a row for each path.
func (r *Report) Summarize() {
	direct, ref := r.Path("direct"), r.Path(r.Reference())
	r.Summary = r.Summary[:0]
	for i := range r.Paths {
		r.Summary = append(r.Summary, condense(&r.Paths[i], direct, ref))
	}
}

func condense(p, direct, ref *Path) Row {
	row := Row{Path: p.Name}
	streams := func(get func(StreamRound) Value) Value { return median(each(p.Streams, get)) }
	p50 := func(s StreamRound) Value { return Of(s.P50) }
	p99 := func(s StreamRound) Value { return Of(s.P99) }
	cpu := func(s StreamRound) Value { return s.RouterCPU }

	row.P50 = streams(p50)
	row.P90 = streams(func(s StreamRound) Value { return Of(s.P90) })
	row.P99 = streams(p99)
	for _, s := range p.Streams {
		row.Max = Of(max(row.Max.X, s.Max))
	}
	row.RouterCPU = streams(cpu)
	row.ServerCPU = streams(func(s StreamRound) Value { return s.ServerCPU })
	row.MachineCPU = streams(func(s StreamRound) Value { return s.MachineCPU })
	row.Busy = streams(func(s StreamRound) Value { return s.Busy })
	row.PerSec = streams(func(s StreamRound) Value { return Of(s.PerSec) })
	row.Switches = streams(func(s StreamRound) Value { return s.Switches })
	row.Spliced = streams(func(s StreamRound) Value { return s.Spliced })

	requests := func(get func(RequestRound) Value) Value { return median(each(p.Requests, get)) }
	row.Requests = requests(func(q RequestRound) Value { return Of(q.PerSec) })
	row.RequestP50 = requests(func(q RequestRound) Value { return Of(q.P50) })
	row.RequestP99 = requests(func(q RequestRound) Value { return Of(q.P99) })
	row.RequestCPU = requests(func(q RequestRound) Value { return q.RouterCPU })
	first := func(t TTFTRound) Value { return Of(t.P50) }
	row.TTFT = median(each(p.TTFT, first))
	row.TTFTP99 = median(each(p.TTFT, func(t TTFTRound) Value { return Of(t.P99) }))
	if p.Idle != nil {
		row.RSS, row.PerIdleStream = p.Idle.Before, p.Idle.PerStream
	}

	if direct != nil && direct != p {
		row.AddedP50 = median(pairs(each(p.Streams, p50), each(direct.Streams, p50), Value.minus))
		row.AddedTTFT = median(pairs(each(p.TTFT, first), each(direct.TTFT, first), Value.minus))
	}
	if ref != nil {
		row.CPURatio = median(pairs(each(p.Streams, cpu), each(ref.Streams, cpu), Value.over))
		row.P99Ratio = median(pairs(each(p.Streams, p99), each(ref.Streams, p99), Value.over))
	}
	if ref != nil && direct != nil && direct != p {
		base := each(direct.Streams, p50)
		own := pairs(each(p.Streams, p50), base, Value.minus)
		theirs := pairs(each(ref.Streams, p50), base, Value.minus)
		row.AddedRatio = median(pairs(own, theirs, ratioOfAdded))
	}
	return row
}

// ratioOfAdded has no meaning where the reference added nothing.
func ratioOfAdded(own, theirs Value) Value {
	if theirs.X <= 0 {
		return Value{}
	}
	return own.over(theirs)
}

func each[R any](rounds []R, get func(R) Value) []Value {
	out := make([]Value, len(rounds))
	for i, r := range rounds {
		out[i] = get(r)
	}
	return out
}

// pairs combines round by round; a round that only one side has is left out.
func pairs(a, b []Value, combine func(Value, Value) Value) (out []Value) {
	for i := range min(len(a), len(b)) {
		out = append(out, combine(a[i], b[i]))
	}
	return out
}

// median of the values that are there; the mean of the two in the middle when
// their number is even.
func median(all []Value) Value {
	var xs []float64
	for _, v := range all {
		if v.OK {
			xs = append(xs, v.X)
		}
	}
	if len(xs) == 0 {
		return Value{}
	}
	slices.Sort(xs)
	n := len(xs)
	return Of((xs[(n-1)/2] + xs[n/2]) / 2)
}
