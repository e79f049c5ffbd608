package poll

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tautline/tautline/userspace/load"
)

const loadPage = `{"site":"b","started":50,"engines":4,"measured":true,"waiting":9,"running":20,"kv_use":0.25,"kv_tokens":4000,"models":["b","a","b"]}`

func gateway(x *Target) { x.Engine = Tautline }

// TestAnAgentIsAskedForItsLoad, and for nothing that it would pass on to one of its
// engines: that one's queue, start time and models are not the site's.
func TestAnAgentIsAskedForItsLoad(t *testing.T) {
	e := healthy(t)
	e.set(LoadPath, says(loadPage))
	p, ear := poller(t, fast(), e.URL, gateway)
	if x := ear.next(t, models); !slices.Equal(x.models, []string{"a", "b"}) {
		t.Errorf("models %q", x.models)
	}
	want := load.Sample{
		Waiting: 9, Running: 20, Engines: 4, HasQueue: true, KVUse: 0.25, HasKV: true,
		CapacityTok: 4000, StartTime: 50, HasStartTime: true,
	}
	for range 3 {
		if x := ear.next(t, func(told) bool { return true }); x.sample != want || !observed(x) {
			t.Errorf("told %+v, want only %+v", x, want)
		}
	}
	if e.count("/metrics")+e.count("/v1/models")+e.count("/health") != 0 {
		t.Error("an engine behind it was asked")
	}
	if s := statusOf(p); s.Engine != Tautline || s.Source != "load" {
		t.Errorf("status %+v", s)
	}
}

// TestAnAgentIsFoundOut where nobody says what the backend is, and an engine is not
// taken for one, whatever it answers to a path that it does not know.
func TestAnAgentIsFoundOut(t *testing.T) {
	e := healthy(t)
	e.set(LoadPath, says(loadPage))
	p, ear := poller(t, fast(), e.URL)
	if x := ear.next(t, observed); x.sample.Engines != 4 || statusOf(p).Engine != Tautline || e.count("/metrics") != 0 {
		t.Errorf("told %+v, status %+v", x.sample, statusOf(p))
	}
	for name, h := range map[string]http.HandlerFunc{
		"404": nil, "500": status(500), "503": status(503), "405": status(405), "everything": says("<html>"), "elsewhere": status(302),
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		e := healthy(t)
		if h != nil {
			e.set(LoadPath, h)
		}
		p, ear := poller(t, fast(), e.URL)
		for range 3 {
			if x := ear.next(t, observed); x.sample.Waiting != 2 || !x.sample.HasQueue {
				t.Errorf("%s: told %+v", name, x.sample)
			}
		}
		s := statusOf(p)
		if s.Engine != VLLM || s.Last != "" || s.Errors != [reasonCount]uint64{} || e.count(LoadPath) != 1 {
			t.Errorf("%s: asked %d times, status %+v", name, e.count(LoadPath), s)
		}
	}
}

// TestAGatewayThatTellsNoLoad is well or not, and its queue is not known, though
// some engine's metrics could be had through it.
func TestAGatewayThatTellsNoLoad(t *testing.T) {
	e := healthy(t)
	p, ear := poller(t, fast(), e.URL, gateway)
	for range 3 {
		if x := ear.next(t, observed); x.sample != (load.Sample{}) {
			t.Errorf("told %+v, want no figures", x.sample)
		}
	}
	if e.count("/metrics") != 0 {
		t.Error("an engine behind it was asked")
	}
	if s := statusOf(p); s.Engine != "" || s.Source != "health" || s.Failures != 0 || s.Errors[ReasonStatus] == 0 {
		t.Errorf("status %+v", s)
	}
}

// TestAnAgentThatRefuses would refuse requests, too.
func TestAnAgentThatRefuses(t *testing.T) {
	e := healthy(t)
	e.set(LoadPath, status(503))
	_, ear := poller(t, fast(), e.URL, gateway)
	ear.next(t, failed)
	e.set(LoadPath, says(loadPage))
	ear.next(t, observed)
	if e.count("/health") != 0 {
		t.Error("an engine behind it was asked")
	}
}

func TestLoadsThatAreNone(t *testing.T) {
	replaced := func(old, by string) string {
		s := strings.Replace(loadPage, old, by, 1)
		if s == loadPage {
			t.Fatalf("%s is not in the page", old)
		}
		return s
	}
	for _, page := range []string{
		"", "null", "{}", "[]", "<html>", page, loadPage[:40],
		replaced(`"b"`, `""`), replaced("9", "-9"), replaced("20", "1e30"), replaced("4,", "-4,"), replaced("4,", "4.5,"),
		replaced("0.25", "-0.1"), replaced("0.25", "1.01"), replaced("4000", "-1"), replaced("4000", "9e18"), replaced("50", "-50"),
		strings.Repeat(" ", modelsBytes) + loadPage,
	} {
		e := healthy(t)
		e.set(LoadPath, says(page))
		p, ear := poller(t, fast(), e.URL, gateway)
		if x := ear.next(t, observed); x.sample != (load.Sample{}) {
			t.Errorf("%.60q: told %+v", page, x.sample)
		}
		if s := statusOf(p); s.Errors[ReasonGarbage]+s.Errors[ReasonTooLarge] == 0 || s.Source != "health" {
			t.Errorf("%.60q: status %+v", page, s)
		}
	}
	for was, want := range map[string]load.Sample{
		replaced("true", "false"):          {KVUse: 0.25, HasKV: true, Engines: 4, CapacityTok: 4000, StartTime: 50, HasStartTime: true},
		`{"site":"b"}`:                     {},
		`{"site":"b","measured":true}`:     {},
		`{"site":"b","later":{"more":[]}}`: {},
	} {
		e := newEngine(t)
		e.set(LoadPath, says(was))
		_, ear := poller(t, fast(), e.URL, gateway)
		if x := ear.next(t, observed); x.sample != want {
			t.Errorf("%s: told %+v, want %+v", was, x.sample, want)
		}
	}
}
