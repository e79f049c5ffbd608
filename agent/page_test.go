package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tautline/tautline/test/testutil"
	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/poll"
)

// lister is an engine that lists models, and describes each with its own name.
func lister(t *testing.T, name string, models ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/models":
			var entries []string
			for _, m := range models {
				entries = append(entries, fmt.Sprintf(`{"id":"%s","owned_by":"%s","max_model_len":7}`, m, name))
			}
			fmt.Fprintf(w, `{"object":"list","data":[%s]}`, strings.Join(entries, ","))
		case strings.HasPrefix(r.URL.Path, "/v1/models/"):
			fmt.Fprint(w, name)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

// TestModelsOfAllBackends: what a client is offered does not depend on the backend that
// the question happens to reach.
func TestModelsOfAllBackends(t *testing.T) {
	a, _ := start(t, settings(t, nil, lister(t, "one", "x", "org/y"), lister(t, "two", "x", "z")))
	url := "http://" + a.Addr() + "/v1/models"
	ids := func() string {
		_, body := get(t, url)
		var v struct {
			Object string
			Data   []struct {
				ID  string
				Len int    `json:"max_model_len"`
				By  string `json:"owned_by"`
			}
		}
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return fmt.Sprint(v)
	}
	const want = "{list [{org/y 7 one} {x 7 one} {z 7 two}]}"
	testutil.Eventually(t, "all models are listed", func() bool { return ids() == want })
	for range 10 {
		if got := ids(); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		for path, want := range map[string]string{"/org/y": "one", "/z": "two", "/org%2Fy": "one"} {
			if code, body := get(t, url+path); code != 200 || body != want {
				t.Fatalf("%s: %d %q, want %q", path, code, body, want)
			}
		}
		if code, body := get(t, url+"/nobody"); code != 404 || !strings.Contains(body, "model_not_found") {
			t.Fatalf("a model that nobody serves: %d %s", code, body)
		}
	}
	if resp, _ := ask(t, "POST", url, "{}"); resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		t.Errorf("POST: %s, %v; want the backend's own answer", resp.Status, resp.Header)
	}
}

// TestModelsOfOneKind: where all backends serve the same, one answers for all.
func TestModelsOfOneKind(t *testing.T) {
	a, _ := start(t, settings(t, nil, lister(t, "one", "x"), lister(t, "one", "x")))
	testutil.Eventually(t, "the models are known", func() bool {
		s := a.Status().Backends
		return len(s[0].Models) > 0 && len(s[1].Models) > 0
	})
	if _, body := get(t, "http://"+a.Addr()+"/v1/models"); body != `{"object":"list","data":[{"id":"x","owned_by":"one","max_model_len":7}]}` {
		t.Error(body)
	}
}

func TestMergeModels(t *testing.T) {
	b := func(slot int, admitted bool, models ...string) decide.BackendState {
		return decide.BackendState{Slot: slot, Admitted: admitted, Spec: decide.Spec{Models: models}}
	}
	listed := map[int][]poll.Model{0: {{ID: "x", Entry: json.RawMessage(`{"id":"x"}`)}}}
	for _, c := range []struct {
		name   string
		all    []decide.BackendState
		want   string
		differ bool
	}{
		{"nobody", nil, "[]", false},
		{"one", []decide.BackendState{b(0, true, "x")}, `[{"id":"x"}]`, false},
		{"the same, in another order", []decide.BackendState{b(1, true, "x", "y"), b(2, true, "y", "x")}, "", false},
		{"one is not known", []decide.BackendState{b(0, true, "x"), b(1, true)}, `[{"id":"x"}]`, false},
		{"one takes nothing", []decide.BackendState{b(0, true, "x"), b(1, false, "y")}, `[{"id":"x"}]`, false},
		{"configured", []decide.BackendState{b(0, true, "x"), b(1, true, `y"`)},
			`[{"id":"x"} {"created":0,"id":"y\"","object":"model","owned_by":"tautline"}]`, true},
	} {
		got, differ := mergeModels(c.all, listed)
		if text := fmt.Sprintf("%s", got); differ != c.differ || c.want != "" && text != c.want {
			t.Errorf("%s: %s, %t; want %s, %t", c.name, text, differ, c.want, c.differ)
		}
	}
}
