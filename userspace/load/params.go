package load

import (
	"fmt"
	"time"
)

// Params are the settings of Books. See Default and Validate.
type Params struct {
	Window time.Duration // over which the worst queue depth is taken

	// A backend is ejected after EjectConnects failed connects in a row, or
	// after EjectErrors answers with a 5xx in a row. One 5xx alone proves little:
	// engines give them for single bad requests.
	EjectConnects int
	EjectErrors   int
	Backoff       time.Duration // first ejection; doubles with each failed probe
	BackoffMax    time.Duration

	BytesPerToken float64 // canonical prompt bytes per token until learned
	Output        float64 // completion tokens per answer until learned
	Models        int     // models whose means are kept apart; the rest share one
}

// Default returns the settings of the design: a window of five seconds, four
// bytes per token, answers of 300 tokens.
func Default() Params {
	return Params{
		Window:        5 * time.Second,
		EjectConnects: 1,
		EjectErrors:   3,
		Backoff:       time.Second,
		BackoffMax:    30 * time.Second,
		BytesPerToken: 4,
		Output:        300,
		Models:        256,
	}
}

// Validate reports the first setting that cannot work, by its name in the
// configuration.
func (p Params) Validate() error {
	switch {
	case p.Window <= 0:
		return fmt.Errorf("poll.window must be positive, got %v", p.Window)
	case p.EjectConnects < 1:
		return fmt.Errorf("ejection.connects must be at least 1, got %d", p.EjectConnects)
	case p.EjectErrors < 1:
		return fmt.Errorf("ejection.errors must be at least 1, got %d", p.EjectErrors)
	case p.Backoff <= 0:
		return fmt.Errorf("ejection.backoff must be positive, got %v", p.Backoff)
	case p.BackoffMax < p.Backoff:
		return fmt.Errorf("ejection.backoff_max must be at least ejection.backoff (%v), got %v", p.Backoff, p.BackoffMax)
	case !(p.BytesPerToken > 0) || p.BytesPerToken > 1024:
		return fmt.Errorf("routing.bytes_per_token must be in (0, 1024], got %v", p.BytesPerToken)
	case !(p.Output > 0) || p.Output > 1e9:
		return fmt.Errorf("routing.completion_tokens must be in (0, 1e9], got %v", p.Output)
	case p.Models < 1:
		return fmt.Errorf("routing.models must be at least 1, got %d", p.Models)
	}
	return nil
}
