package plan

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// near fails unless got rounds to the figure the article prints.
func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s = %v, want %v within %v", what, got, want, within)
	}
}

func TestSeedArithmetic(t *testing.T) {
	r, err := Compute(Seed())
	if err != nil {
		t.Fatal(err)
	}
	if r.KVBytesPerToken != 262144 {
		t.Errorf("KV bytes per token = %v, want 262144", r.KVBytesPerToken)
	}
	near(t, "GiB per prefix", r.KVBytesPerPrefix/GiB, 13.43, 0.005)
	if r.PrefixesPerNode != 4 {
		t.Errorf("prefixes per node = %d, want 4", r.PrefixesPerNode)
	}
	near(t, "R_peak", r.RPeak, 20480, 1e-6)
	if r.Tau != 286720 {
		t.Errorf("tau = %d, want 286720", r.Tau)
	}
	near(t, "chunks", r.Chunks, 35, 1e-9)
	near(t, "break-even s", r.BreakEvenSec, 2.69, 0.005)
	near(t, "cached s", r.CachedSec, 0.0732, 0.00005)
	near(t, "cold s", r.ColdSec, 2.76, 0.005)
	near(t, "ratio", r.Ratio, 37.7, 0.05)
	near(t, "tolerance over break-even", r.TauBreakEven, 5.2, 0.05)
	near(t, "hottest share", r.HottestShare, 0.272, 0.0005)
	near(t, "hot spot", r.HotSpotRate, 50, 0.5)
	near(t, "hit rate without affinity", r.ColdHitRate, 0.35, 0.01)
	near(t, "round-robin cap", r.ColdCap, 5.5, 0.1)
	if r.Verdict != NeedsWarmth {
		t.Errorf("verdict at 40/s = %v, want NeedsWarmth", r.Verdict)
	}
}

func TestRoundRobinCapByHand(t *testing.T) {
	in := Seed()
	in.ColdHitRate = 0.35 // 0.35 x 1500 + 0.65 x 56500 = 37,250 tokens; 204,800 / 37,250
	r, err := Compute(in)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "cap", r.ColdCap, 204800.0/37250, 1e-9)
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Input)
		want   Verdict
	}{
		{"low rate", func(in *Input) { in.Rate = 4 }, Fits},
		{"above round-robin", func(in *Input) { in.Rate = 6 }, NeedsWarmth},
		{"above the hot spot", func(in *Input) { in.Rate = 60 }, NeedsSpread},
		{"too many prefixes", func(in *Input) { in.Prefixes = 41 }, CacheShort},
		{"above all hits", func(in *Input) { in.Rate = 137 }, Overloaded},
		{"everything fits everywhere", func(in *Input) { in.Prefixes = 4; in.Rate = 100 }, Fits},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := Seed()
			c.change(&in)
			r, err := Compute(in)
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != c.want {
				t.Errorf("got %v, want %v", r.Verdict, c.want)
			}
			if r.Verdict.String() == "unknown" {
				t.Error("verdict has no text")
			}
		})
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	err := Input{ColdHitRate: 1, Zipf: math.NaN()}.Validate()
	if err == nil {
		t.Fatal("the zero input is accepted")
	}
	for _, word := range []string{"layers", "kv heads", "head dimension", "KV budget", "servers", "batch tokens",
		"batch seconds", "tolerance", "prefix tokens", "unique tokens", "rate", "zipf", "hit rate"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error does not name %q: %v", word, err)
		}
	}
	if _, err := Compute(Input{}); err == nil {
		t.Error("Compute accepts what Validate refuses")
	}
}

// What no fleet has must give an error or a number, and soon.
func TestOddInput(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"a steep fall": func(in *Input) { in.Zipf = 2000 },
		"all memory":   func(in *Input) { in.KVBudgetBytes = 1e300 },
		"no memory":    func(in *Input) { in.KVBudgetBytes = 1 },
	} {
		in := Seed()
		change(&in)
		r, err := Compute(in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, v := range []float64{r.ColdHitRate, r.ColdCap, r.HotSpotRate, float64(r.PrefixesPerNode)} {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	for name, change := range map[string]func(*Input){
		"prefixes": func(in *Input) { in.Prefixes = 2_000_000_000 },
		"seconds":  func(in *Input) { in.BatchSeconds = 1e-300 },
	} {
		in := Seed()
		change(&in)
		if _, err := Compute(in); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// The estimate of the hit rate is held against a plain LRU fed at random.
func TestColdHitRateAgainstLRU(t *testing.T) {
	for _, c := range []struct {
		n, slots int
		zipf     float64
	}{{40, 4, 1.1}, {40, 10, 1.1}, {100, 20, 0.8}, {10, 3, 0}, {5, 5, 1}, {5, 0, 1}} {
		shares := ZipfShares(c.n, c.zipf)
		rnd := rand.New(rand.NewPCG(1, 2))
		var lru []int
		hits, total := 0, 200000
		for range total {
			x, g := rnd.Float64(), 0
			for x > shares[g] && g < c.n-1 {
				x -= shares[g]
				g++
			}
			at := -1
			for i, h := range lru {
				if h == g {
					at = i
				}
			}
			if at >= 0 {
				hits++
				lru = append(lru[:at], lru[at+1:]...)
			} else if len(lru) >= c.slots && len(lru) > 0 {
				lru = lru[1:]
			}
			if c.slots > 0 {
				lru = append(lru, g)
			}
		}
		near(t, "hit rate", ColdHitRate(shares, c.slots), float64(hits)/float64(total), 0.02)
	}
}
