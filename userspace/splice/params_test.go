package splice_test

import (
	"testing"

	"github.com/tautline/tautline/userspace/splice"
)

func TestParams(t *testing.T) {
	if err := splice.Default().Validate(); err != nil {
		t.Errorf("default: %v", err)
	}
	for name, change := range map[string]func(*splice.Params){
		"no credit":         func(p *splice.Params) { p.Credit = 0 },
		"credit too large":  func(p *splice.Params) { p.Credit = uint32(p.SendBuffer) },
		"negative unread":   func(p *splice.Params) { p.Unread = -1 },
		"buffer too large":  func(p *splice.Params) { p.SendBuffer = 1 << 30 },
		"buffer negative":   func(p *splice.Params) { p.SendBuffer = -1 },
		"buffer too little": func(p *splice.Params) { p.SendBuffer = 4096 },
	} {
		p := splice.Default()
		change(&p)
		if p.Validate() == nil {
			t.Errorf("%s: %+v is taken", name, p)
		}
	}
}

func TestParseMode(t *testing.T) {
	for in, want := range map[string]splice.Mode{"": splice.ModeAuto, "auto": splice.ModeAuto, "off": splice.ModeOff, "required": splice.ModeRequired} {
		if got, err := splice.ParseMode(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"on", "Auto", " auto"} {
		if _, err := splice.ParseMode(in); err == nil {
			t.Errorf("%q is taken", in)
		}
	}
}

// Every value of an enum has a name of its own: they are label values.
func TestNames(t *testing.T) {
	names := map[string]bool{}
	for r := splice.Spliced; r.String() != "unknown"; r++ {
		if names[r.String()] || r.String() == "" {
			t.Errorf("reason %d: %q", r, r)
		}
		names[r.String()] = true
	}
	if len(names) != int(splice.NeverRedirected)+1 {
		t.Errorf("%d reasons have names", len(names))
	}
	for r := splice.Ended; r <= splice.Aborted; r++ {
		if r.String() == "unknown" {
			t.Errorf("result %d has no name", r)
		}
	}
}
