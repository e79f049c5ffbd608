// Package plan does the arithmetic of prefix-affinity routing for one model on
// one kind of server: how much KV a prefix takes, how many fit, when a cold
// server beats a warm one, where the saturation limit stands and whether the
// fleet has headroom.
//
// It is pure. The formulas are those of the article "Sticky until saturated";
// its numbers are this package's tests.
package plan

import (
	"errors"
	"fmt"
	"math"
)

// GiB is 2^30 bytes.
const GiB = 1 << 30

// Geometry is the part of a model's config.json that sizes its KV cache.
type Geometry struct {
	Layers     int     // num_hidden_layers
	KVHeads    int     // num_key_value_heads
	HeadDim    int     // head_dim
	DtypeBytes float64 // bytes per KV element: 2 for bf16, 1 for fp8
}

// KVBytesPerToken returns the bytes one token takes in the KV cache: a key and
// a value vector per layer and KV head.
func (g Geometry) KVBytesPerToken() float64 {
	return 2 * float64(g.Layers) * float64(g.KVHeads) * float64(g.HeadDim) * g.DtypeBytes
}

// Limit is the saturation limit of sticky-until-saturated routing.
type Limit struct {
	RPeak  float64 // peak prefill throughput of one server, tokens/s
	Tau    int64   // R_peak x T_max, tokens
	Chunks float64 // tau in batches of the measured size
}

// Saturation returns the limit for a server that prefills batchTokens in
// batchSeconds, where toleranceSeconds is the accepted growth of the time to
// first token. The division is done last, so that decimal inputs (8192 tokens
// in 0.40 s, 14 s) give the limit that they give by hand.
func Saturation(batchTokens, batchSeconds, toleranceSeconds float64) Limit {
	tau := batchTokens * toleranceSeconds / batchSeconds
	return Limit{
		RPeak:  batchTokens / batchSeconds,
		Tau:    int64(math.Floor(tau + 1e-6)),
		Chunks: toleranceSeconds / batchSeconds,
	}
}

// Input describes a fleet and the traffic it is to serve.
type Input struct {
	Model Geometry

	KVBudgetBytes float64 // KV memory of one server
	Servers       int

	BatchTokens  float64 // engine's max_num_batched_tokens
	BatchSeconds float64 // measured time of one such batch, see tautline calibrate
	ToleranceSec float64 // T_max

	PrefixTokens int     // P: shared, cacheable
	UniqueTokens int     // U: new in every request
	Prefixes     int     // distinct prefixes in the traffic
	Zipf         float64 // exponent of their popularity; 0 = all equal
	Rate         float64 // requests/s over the fleet

	// ColdHitRate is the share of requests that hit when placement ignores the
	// caches; 0 = estimated, see ColdHitRate.
	ColdHitRate float64
}

// Seed returns the article's example: Qwen3-32B, tensor parallel 2 on two H100
// per server, ten servers, 40 prefixes of 55,000 tokens.
func Seed() Input {
	return Input{
		Model:         Geometry{Layers: 64, KVHeads: 8, HeadDim: 128, DtypeBytes: 2},
		KVBudgetBytes: 64 * GiB,
		Servers:       10,
		BatchTokens:   8192,
		BatchSeconds:  0.40,
		ToleranceSec:  14,
		PrefixTokens:  55000,
		UniqueTokens:  1500,
		Prefixes:      40,
		Zipf:          1.1,
		Rate:          40,
	}
}

// maxPrefixes bounds the work and the memory of the estimate of the hit rate.
const maxPrefixes = 1_000_000

// Validate says what is wrong with the input, all at once.
func (in Input) Validate() error {
	var errs []error
	positive := func(name string, v float64) {
		if !(v > 0) || math.IsInf(v, 0) {
			errs = append(errs, fmt.Errorf("%s: must be a positive number, is %v", name, v))
		}
	}
	positive("layers", float64(in.Model.Layers))
	positive("kv heads", float64(in.Model.KVHeads))
	positive("head dimension", float64(in.Model.HeadDim))
	positive("bytes per KV element", in.Model.DtypeBytes)
	positive("KV budget", in.KVBudgetBytes)
	positive("servers", float64(in.Servers))
	positive("batch tokens", in.BatchTokens)
	positive("batch seconds", in.BatchSeconds)
	positive("tolerance", in.ToleranceSec)
	positive("prefix tokens", float64(in.PrefixTokens))
	positive("unique tokens", float64(in.UniqueTokens))
	positive("prefixes", float64(in.Prefixes))
	positive("rate", in.Rate)
	if !(in.Zipf >= 0) || math.IsInf(in.Zipf, 0) {
		errs = append(errs, fmt.Errorf("zipf exponent: must be 0 or more, is %v", in.Zipf))
	}
	if in.Prefixes > maxPrefixes {
		errs = append(errs, fmt.Errorf("prefixes: at most %d, is %d", maxPrefixes, in.Prefixes))
	}
	if tau := in.BatchTokens * in.ToleranceSec / in.BatchSeconds; tau > 1<<62 {
		errs = append(errs, fmt.Errorf("batch tokens x tolerance / batch seconds: no number of tokens, is %v", tau))
	}
	if !(in.ColdHitRate >= 0 && in.ColdHitRate < 1) {
		errs = append(errs, fmt.Errorf("hit rate without affinity: must be in [0,1), is %v", in.ColdHitRate))
	}
	return errors.Join(errs...)
}

// Verdict says whether the fleet can serve the rate, and what stands in the way.
type Verdict int

// The verdicts, from good to bad.
const (
	Fits        Verdict = iota // any placement serves it
	NeedsWarmth                // only with affinity: round-robin would fall behind
	NeedsSpread                // affinity must release: the hottest prefix alone fills its server
	CacheShort                 // a cost that is paid at every rate: the prefixes do not fit into the fleet's caches
	Overloaded                 // even if every request hit, the fleet would fall behind
)

// String returns one plain sentence.
func (v Verdict) String() string {
	switch v {
	case Fits:
		return "the fleet serves this rate whatever the placement"
	case NeedsWarmth:
		return "the fleet has headroom only with prefix affinity: without it, it falls behind"
	case NeedsSpread:
		return "the fleet has headroom, but the hottest prefix needs more than one server: affinity must release"
	case CacheShort:
		return "the fleet's caches cannot hold all prefixes once: hit rates stay below what this plan assumes, add servers or KV"
	case Overloaded:
		return "the fleet is too small: even if every request hit its prefix it would fall behind"
	default:
		return "unknown"
	}
}

// Report is the result of Compute.
type Report struct {
	KVBytesPerToken  float64
	KVBytesPerPrefix float64
	PrefixesPerNode  int

	Limit
	BreakEvenSec float64 // queue difference at which a cold server is as fast for this one request: P / R_peak
	CachedSec    float64 // prefill of U
	ColdSec      float64 // prefill of P + U
	Ratio        float64 // ColdSec / CachedSec
	TauBreakEven float64 // tolerance over break-even

	HottestShare float64 // share of the most popular prefix
	HotSpotRate  float64 // fleet rate at which one server that alone serves the hottest prefix is full
	ColdHitRate  float64 // hit rate without affinity
	ColdCap      float64 // fleet rate that round-robin can serve
	WarmCap      float64 // fleet rate if every request hit
	Verdict      Verdict
}

// Compute does the arithmetic. The error is Validate's.
func Compute(in Input) (Report, error) {
	if err := in.Validate(); err != nil {
		return Report{}, err
	}
	p, u := float64(in.PrefixTokens), float64(in.UniqueTokens)
	r := Report{Limit: Saturation(in.BatchTokens, in.BatchSeconds, in.ToleranceSec)}
	r.KVBytesPerToken = in.Model.KVBytesPerToken()
	r.KVBytesPerPrefix = p * r.KVBytesPerToken
	r.PrefixesPerNode = int(min(in.KVBudgetBytes/r.KVBytesPerPrefix, math.MaxInt32))
	r.BreakEvenSec = p / r.RPeak
	r.CachedSec = u / r.RPeak
	r.ColdSec = (p + u) / r.RPeak
	r.Ratio = (p + u) / u
	r.TauBreakEven = in.ToleranceSec / r.BreakEvenSec
	shares := ZipfShares(in.Prefixes, in.Zipf)
	r.HottestShare = shares[0]
	r.HotSpotRate = 1 / (r.HottestShare * r.CachedSec)
	r.ColdHitRate = in.ColdHitRate
	if r.ColdHitRate == 0 {
		r.ColdHitRate = ColdHitRate(shares, r.PrefixesPerNode)
	}
	fleet := float64(in.Servers) * r.RPeak
	r.ColdCap = fleet / (r.ColdHitRate*u + (1-r.ColdHitRate)*(p+u))
	r.WarmCap = fleet / u
	r.Verdict = verdict(in, r)
	return r, nil
}

func verdict(in Input, r Report) Verdict {
	switch {
	case in.Rate >= r.WarmCap:
		return Overloaded
	case in.Rate < r.ColdCap:
		return Fits
	case r.PrefixesPerNode*in.Servers < in.Prefixes:
		return CacheShort
	case in.Rate >= r.HotSpotRate:
		return NeedsSpread
	default:
		return NeedsWarmth
	}
}

// ZipfShares returns the shares of n items whose popularity falls as
// 1/rank^exponent, the most popular first. n must be at least 1.
func ZipfShares(n int, exponent float64) []float64 {
	shares := make([]float64, n)
	sum := 0.0
	for i := range shares {
		shares[i] = math.Pow(float64(i+1), -exponent)
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// ColdHitRate estimates how often a request finds its prefix on a server with
// an LRU cache of slots prefixes when placement ignores the caches: every
// server then sees the same mix. It uses Che's approximation: a prefix is
// present when it was asked for within the characteristic time of the cache,
// which is the time in which slots different prefixes are asked for. shares fall.
func ColdHitRate(shares []float64, slots int) float64 {
	if slots <= 0 {
		return 0
	}
	for len(shares) > 0 && shares[len(shares)-1] == 0 { // nobody asks for it
		shares = shares[:len(shares)-1]
	}
	if slots >= len(shares) {
		return 1
	}
	distinct := func(t float64) float64 {
		sum := 0.0
		for _, s := range shares {
			sum += 1 - math.Exp(-s*t)
		}
		return sum
	}
	lo, hi := 0.0, 1.0
	for distinct(hi) < float64(slots) {
		hi *= 2
	}
	for range 100 {
		if mid := (lo + hi) / 2; distinct(mid) < float64(slots) {
			lo = mid
		} else {
			hi = mid
		}
	}
	hit := 0.0
	for _, s := range shares {
		hit += s * (1 - math.Exp(-s*hi))
	}
	return hit
}
