package decide

import "testing"

// Among what costs no more than one fill above the cheapest and would fill the same, all
// agents take the same.
func TestHomeward(t *testing.T) {
	p := Default()
	for _, c := range []struct {
		name string
		cs   []Candidate
		want int
	}{
		{"the highest within one fill", []Candidate{{Cost: 100, Uncached: 50, Home: 1}, {Cost: 150, Uncached: 50, Home: 2}}, 1},
		{"not above it", []Candidate{{Cost: 100, Uncached: 50, Home: 1}, {Cost: 151, Uncached: 50, Home: 2}}, 0},
		{"not who holds less", []Candidate{{Cost: 100, Uncached: 50, Home: 1}, {Cost: 120, Uncached: 60, Home: 2}}, 0},
		{"what others left counts as held", []Candidate{{Cost: 100, Uncached: 100, Left: 50, Home: 1}, {Cost: 120, Uncached: 50, Home: 2}}, 1},
		{"nothing to fill: the cheapest", []Candidate{{Cost: 100, Home: 1}, {Cost: 100.5, Home: 2}}, 0},
	} {
		if got := (choice{&p, Question{}, newRand(1)}).homeward(c.cs); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
