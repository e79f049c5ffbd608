package agent

import (
	"fmt"
	"strings"
	"testing"
)

// TestSitesThatNameEachOther: a request that came from the other site is served
// here or by nobody, and gets its answer at once.
func TestSitesThatNameEachOther(t *testing.T) {
	site := func(name, other string, urls ...string) map[string]any {
		var list []map[string]any
		for i, u := range urls {
			of := other
			if i > 0 {
				of = name // an engine of its own
			}
			list = append(list, map[string]any{"name": fmt.Sprintf("b%d", i), "site": of, "url": u})
		}
		return map[string]any{"site": name, "backends": list, "routing.policy": "round-robin"}
	}
	east, _ := start(t, settings(t, site("east", "west")))
	west, _ := start(t, settings(t, site("west", "east", "http://"+east.Addr())))
	if err := east.Reload(settings(t, site("east", "west", "http://"+west.Addr()))); err != nil {
		t.Fatal(err)
	}
	url := "http://" + east.Addr() + "/v1/chat/completions"
	if code, text := post(t, url, fmt.Sprintf(chat, "x")); code != 503 || !strings.Contains(text, "no_backend") {
		t.Errorf("without an engine: %d %s, want 503", code, text)
	}
	if err := west.Reload(settings(t, site("west", "east", "http://"+east.Addr(), engine(t, nil).URL()))); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if code, text := post(t, url, fmt.Sprintf(chat, strings.Repeat("y", n))); code != 200 {
			t.Errorf("with an engine: %d %s", code, text)
		}
	}
}
