package traffic

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// Rate gives the momentary rate of an open loop in requests/s, and the longest
// rate it ever has.
type Rate struct {
	Peak float64
	At   func(Instant) float64 // nil = always Peak
}

// Constant is a rate that never changes.
func Constant(perSecond float64) Rate { return Rate{Peak: perSecond} }

// Wave alternates between low and high times perSecond every half period,
// beginning with low.
func Wave(perSecond, low, high float64, half time.Duration) Rate {
	return Rate{Peak: perSecond * high, At: func(t Instant) float64 {
		if t/half%2 == 0 {
			return perSecond * low
		}
		return perSecond * high
	}}
}

// Draw fills one job of an open loop.
type Draw func(j *Job, n int, rnd *rand.Rand)

// Poisson is an open loop: arrivals do not wait for answers.
type Poisson struct {
	rate  Rate
	until Instant
	draw  Draw
	rnd   *rand.Rand
	next  Instant
	n     int
}

// NewPoisson returns an open loop that ends at until. Arrival times and requests
// are drawn in turn from one stream.
func NewPoisson(rate Rate, until Instant, seed uint64, draw Draw) *Poisson {
	p := &Poisson{rate: rate, until: until, draw: draw, rnd: rand.New(rand.NewPCG(seed, 0x706f6973))}
	p.advance()
	return p
}

// advance thins a process of the peak rate down to the momentary one.
func (p *Poisson) advance() {
	if p.rate.Peak <= 0 {
		p.next = Never
		return
	}
	for {
		p.next += Instant(p.rnd.ExpFloat64() / p.rate.Peak * 1e9)
		if p.next >= p.until {
			p.next = Never
			return
		}
		if p.rate.At == nil || p.rnd.Float64()*p.rate.Peak < p.rate.At(p.next) {
			return
		}
	}
}

// Next implements Source.
func (p *Poisson) Next() Instant { return p.next }

// Pop implements Source.
func (p *Poisson) Pop(j *Job) {
	p.draw(j, p.n, p.rnd)
	p.n++
	p.advance()
}

// Done implements Source; an open loop does not care.
func (p *Poisson) Done(*Job, Instant) {}

// Zipf draws ranks 0..n-1 with a popularity of 1/(rank+1)^exponent.
type Zipf struct{ cumulative []float64 }

// NewZipf prepares a Zipf of n ranks, n at least 1.
func NewZipf(n int, exponent float64) Zipf {
	cumulative := make([]float64, n)
	sum := 0.0
	for i := range cumulative {
		sum += math.Pow(float64(i+1), -exponent)
		cumulative[i] = sum
	}
	for i := range cumulative {
		cumulative[i] /= sum
	}
	return Zipf{cumulative}
}

// Share returns the share of a rank.
func (z Zipf) Share(rank int) float64 {
	if rank == 0 {
		return z.cumulative[0]
	}
	return z.cumulative[rank] - z.cumulative[rank-1]
}

// Draw returns a rank.
func (z Zipf) Draw(rnd *rand.Rand) int {
	return sort.SearchFloat64s(z.cumulative, rnd.Float64())
}

// Merged interleaves several sources; a job's Class says which it came from, so
// its parts must not be Merged themselves.
type Merged struct{ Parts []Source }

// Next implements Source.
func (m *Merged) Next() Instant {
	_, t := m.first()
	return t
}

func (m *Merged) first() (int, Instant) {
	best, at := -1, Never
	for i, p := range m.Parts {
		if t := p.Next(); t < at {
			best, at = i, t
		}
	}
	return best, at
}

// Pop implements Source.
func (m *Merged) Pop(j *Job) {
	i, _ := m.first()
	m.Parts[i].Pop(j)
	j.Class = i
}

// Done implements Source.
func (m *Merged) Done(j *Job, now Instant) { m.Parts[j.Class].Done(j, now) }
