package splice

import (
	"context"
	"errors"
	"fmt"

	"github.com/tautline/tautline/maps"
)

// ErrRequired says that splicing is required and cannot be had; the text is why.
var ErrRequired = errors.New("splice is required")

// Mode says whether the agent splices.
type Mode string

// Modes of splicing.
const (
	ModeOff      Mode = "off"      // never
	ModeAuto     Mode = "auto"     // where the self-test passes
	ModeRequired Mode = "required" // or do not start
)

// ParseMode reads a mode; the empty string is ModeAuto.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case "":
		return ModeAuto, nil
	case ModeOff, ModeAuto, ModeRequired:
		return m, nil
	}
	return "", fmt.Errorf("splice mode %q: must be off, auto or required", s)
}

// Kernel is the loaded kernel side.
type Kernel interface {
	Maps() *maps.Set
	Close() error
}

// Status says what Start came to.
type Status struct {
	Mode   Mode    `json:"mode"`
	On     bool    `json:"on"`
	Reason string  `json:"reason"` // why it is off; empty when on
	Checks []Check `json:"checks,omitempty"`
}

// Start makes a Splicer as the mode demands: it opens the kernel side and runs the
// self-test. Where that fails ModeAuto gives a Splicer that is off and the reason,
// ModeRequired an error that wraps ErrRequired. The Kernel is nil when the Splicer
// is off; otherwise the caller closes it after the last connection.
func Start(ctx context.Context, mode Mode, p Params, open func() (Kernel, error)) (*Splicer, Kernel, Status, error) {
	st := Status{Mode: mode}
	if mode == ModeOff {
		st.Reason = "off by configuration"
		return New(nil, p), nil, st, nil
	}
	k, err := open()
	if err == nil {
		st.Checks = SelfTest(ctx, k.Maps(), p)
		if err = Failed(st.Checks); err == nil {
			st.On = true
			return New(k.Maps(), p), k, st, nil
		}
		err = errors.Join(err, k.Close())
	}
	st.Reason = err.Error()
	if mode == ModeRequired {
		return nil, nil, st, fmt.Errorf("%w: %v", ErrRequired, err)
	}
	return New(nil, p), nil, st, nil
}
