package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tautline/tautline/userspace/decide"
	"github.com/tautline/tautline/userspace/pin"
)

// store is a stand-in engine with stored responses of its own.
func store(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		var in struct {
			Previous string `json:"previous_response_id"`
			Stream   bool
		}
		_ = json.Unmarshal(body, &in)
		id, given := strings.CutPrefix(r.URL.Path, "/v1/responses/")
		switch {
		case given && id != "resp_1":
			w.WriteHeader(404)
			_, _ = fmt.Fprintf(w, `{"error":{"message":"Response with id '%s' not found.","code":404}}`, id)
		case in.Stream:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\nevent: response.output_text.delta\ndata: {\"delta\":\"resp_1\"}\n\n")
		default:
			_, _ = fmt.Fprintf(w, `{"id":"resp_1","object":"response","previous_response_id":%q,"output":"by %s, resp_1","length":%d}`, in.Previous, name, r.ContentLength)
		}
	}
}

// TestStoredResponses: an id made by one of three backends comes back to it, in
// the body and in the path, and the engines never see a tag (F1, F2).
func TestStoredResponses(t *testing.T) {
	tagger, err := pin.NewTagger("local", [][]byte{[]byte(strings.Repeat("k", 32))})
	if err != nil {
		t.Fatal(err)
	}
	var pins *Pins
	g := newRig(t, func(o *Options) {
		pins = NewPins(tagger, nil, FleetView{o.Router.(*decide.Fleet), func() decide.Instant { return 0 }})
		o.Pinner = pins
	})
	var all []pin.Backend
	slots := map[string]int{}
	for _, name := range []string{"a", "b", "c"} {
		slots[name] = g.add(name, store(name))
		all = append(all, pin.Backend{ID: slots[name], Site: "local", Name: name})
	}
	roster, err := pin.NewRoster("local", all)
	if err != nil {
		t.Fatal(err)
	}
	pins.SetRoster(roster)
	for range 20 {
		_, text := g.post("/v1/responses", `{"input":"x"}`, "Accept-Encoding", "gzip")
		var made struct{ ID, Output string }
		if err := json.Unmarshal([]byte(text), &made); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		by := strings.TrimSuffix(strings.TrimPrefix(made.Output, "by "), ", resp_1")
		if want := tagger.Tag(pin.ClusterMark(by), "resp_1"); made.ID != want {
			t.Fatalf("id %q, want %q", made.ID, want)
		}
		// It names its backend, in a body, ...
		_, text = g.post("/v1/responses", `{"previous_response_id":"`+made.ID+`","input":"y"}`)
		if !strings.Contains(text, "by "+by+",") || !strings.Contains(text, fmt.Sprintf(`"length":%d`, len(`{"previous_response_id":"resp_1","input":"y"}`))) {
			t.Errorf("the next turn of %s: %s", by, text)
		}
		// ... and in a path.
		req, err := http.NewRequest("GET", "http://"+g.addr+"/v1/responses/"+made.ID+"?x=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, text = g.do(req); !strings.Contains(text, "by "+by+",") {
			t.Errorf("retrieved from %s: %s", by, text)
		}
	}
	t.Run("streamed", func(t *testing.T) {
		_, text := g.post("/v1/responses", `{"input":"x","stream":true}`)
		if strings.Count(text, "resp_local.") != 1 || !strings.Contains(text, `{"delta":"resp_1"}`) {
			t.Errorf("got %s", text)
		}
	})
	t.Run("error text", func(t *testing.T) {
		tagged := tagger.Tag(pin.ClusterMark("a"), "resp_2")
		req, err := http.NewRequest("GET", "http://"+g.addr+"/v1/responses/"+tagged, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, text := g.do(req); resp.StatusCode != 404 || !strings.Contains(text, tagged) {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	})
	good := tagger.Tag(pin.ClusterMark("a"), "resp_1")
	gone := tagger.Tag(pin.ClusterMark("z"), "resp_1")
	for _, tc := range []struct {
		name, path, body string
		status           int
		reason           Refusal
	}{
		{"no tag in a path", "/v1/responses/resp_1/cancel", "{}", 404, RefusalPinUnknown},
		{"forged", "/v1/responses/" + good[:len("resp_local.")] + "0" + good[len("resp_local.")+1:], "{}", 404, RefusalPinUnknown},
		{"backend that is gone", "/v1/responses", `{"previous_response_id":"` + gone + `"}`, 404, RefusalPinUnknown},
		{"request_id that looks tagged", "/v1/responses", `{"request_id":"` + good + `"}`, 400, RefusalPinRequestID},
		{"no tag in a body", "/v1/responses", `{"previous_response_id":"resp_1"}`, 200, RefusalNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := g.finished()
			resp, text := g.post(tc.path, tc.body)
			if s := g.last(before + 1); resp.StatusCode != tc.status || s.Refusal != tc.reason {
				t.Errorf("%d %s, recorded %+v", resp.StatusCode, text, s)
			}
		})
	}
	t.Run("backend that drains", func(t *testing.T) {
		g.fleet.Drain(slots["a"], true)
		if resp, _ := g.post("/v1/responses", `{"previous_response_id":"`+good+`"}`); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" {
			t.Errorf("%d", resp.StatusCode)
		}
	})
	g.idle()
}
