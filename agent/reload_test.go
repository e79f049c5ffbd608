package agent

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/agent/config"
	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/test/testutil"
)

// gated is a backend whose streamed answer waits for open to be closed; asked
// gets a value for each request that has come.
func gated(t *testing.T) (url string, asked chan struct{}, open chan struct{}) {
	t.Helper()
	asked, open = make(chan struct{}, 8), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		select {
		case <-open:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL, asked, open
}

// later sends a request and hands its answer over when there is one, or why there
// is none.
func later(url, body string) <-chan string {
	answered := make(chan string, 1)
	go func() {
		resp, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		raw, _ := io.ReadAll(resp.Body)
		answered <- string(raw)
	}()
	return answered
}

func TestARequestThatOutlivesItsBackendBringsNoSeriesBack(t *testing.T) {
	url, asked, open := gated(t)
	a, _ := start(t, settings(t, nil, url))
	answered := later("http://"+a.Addr()+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	<-asked
	if err := a.Reload(settings(t, nil)); err != nil {
		t.Fatal(err)
	}
	// What a status that was begun before the reload asks at its end.
	if q := a.recorder.TTFT("gpu0"); q != nil {
		t.Errorf("quantiles of a removed backend: %+v", q)
	}
	close(open)
	if body := <-answered; !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the request under way got %q, want its whole answer", body)
	}
	var page string
	testutil.Eventually(t, "the request has been counted", func() bool {
		_, page = get(t, "http://"+a.AdminAddr()+"/metrics")
		return strings.Contains(page, `tautline_requests_total{backend="(removed)",code="200"} 1`)
	})
	for line := range strings.Lines(page) {
		if strings.Contains(line, `backend="gpu0"`) {
			t.Errorf("a removed backend has the series %s", line)
		}
	}
}

func TestIdsOfABackendThatIsRemovedWhileItAnswersAreTagged(t *testing.T) {
	asked, open := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			asked <- struct{}{}
			<-open
		}
		_, _ = io.WriteString(w, `{"id":"resp_1","object":"response","data":[]}`)
	}))
	t.Cleanup(s.Close)
	a, _ := start(t, settings(t, nil, s.URL))
	answered := later("http://"+a.Addr()+"/v1/responses", makeOne)
	<-asked
	if err := a.Reload(settings(t, nil)); err != nil {
		t.Fatal(err)
	}
	close(open)
	id := idOf(t, <-answered)
	if !strings.HasPrefix(id, "resp_local.") {
		t.Fatalf("the id left untagged: %s", id)
	}
	if err := a.Reload(settings(t, nil, s.URL)); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, "http://"+a.Addr()+"/v1/responses/"+id); code != 200 || idOf(t, body) != id {
		t.Errorf("when the backend is back: %d %s", code, body)
	}
}

func TestABackendThatComesBackCountsFromZero(t *testing.T) {
	url, _, open := gated(t)
	close(open)
	a, _ := start(t, settings(t, nil, url))
	ask := func() {
		if code, text := post(t, "http://"+a.Addr()+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[]}`); code != 200 {
			t.Fatalf("%d: %s", code, text)
		}
		// It is counted when its handler ends, a moment after its last byte.
		testutil.Eventually(t, "the request has ended", func() bool { return a.proxy.Active() == 0 })
	}
	ask()
	for _, urls := range [][]string{{}, {url}} {
		if err := a.Reload(settings(t, nil, urls...)); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	var page string
	testutil.Eventually(t, "the request has been counted", func() bool {
		_, page = get(t, "http://"+a.AdminAddr()+"/metrics")
		return strings.Contains(page, `tautline_requests_total{backend="gpu0",code="200"} `)
	})
	if !strings.Contains(page, `tautline_requests_total{backend="gpu0",code="200"} 1`+"\n") {
		t.Error("the counts of a former backend of that name came back")
	}
}

func TestAStreamOfARemovedBackendDoesNotCountForTheNextInItsSlot(t *testing.T) {
	over := map[string]any{"splice.mode": "auto", "splice.pin_path": testutil.BPFFS(t) + "/tautline"}
	more := make(chan struct{})
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range more {
			_, _ = io.WriteString(w, "data: {}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(old.Close)
	a, _ := start(t, settings(t, over, old.URL))
	if on, why := a.SpliceOn(); !on {
		t.Skip("the kernel cannot splice here: ", why)
	}
	chunks := func() uint64 { return a.Status().Backends[0].SplicedChunks }
	testutil.Eventually(t, "the backend has a row", func() bool { _, ok, _ := a.SpliceMaps().Latency(0); return ok })
	done := make(chan error, 1)
	resps := make(chan *http.Response, 1)
	go func() {
		resp, err := http.Post("http://"+a.Addr()+"/v1/chat/completions", "application/json", strings.NewReader(`{"stream":true,"messages":[]}`))
		done <- err
		resps <- resp
	}()
	more <- struct{}{}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	resp := <-resps
	defer resp.Body.Close()
	defer close(more)
	read := func() {
		if _, err := io.ReadFull(resp.Body, make([]byte, len("data: {}\n\n"))); err != nil {
			t.Fatal(err)
		}
	}
	read()
	for chunks() == 0 { // the kernel takes over when the agent has armed it
		more <- struct{}{}
		read()
	}
	for _, urls := range [][]string{nil, {engine(t, nil).URL()}} {
		if err := a.Reload(settings(t, over, urls...)); err != nil {
			t.Fatal(err)
		}
	}
	if a.members["local/gpu0"].slot != 0 {
		t.Fatal("the slot was not used again: this test proves nothing")
	}
	testutil.Eventually(t, "the next backend has a row", func() bool {
		rows, err := a.SpliceMaps().Backends()
		return err == nil && len(rows) == 1
	})
	var carried uint64
	count := func() (n uint64) {
		_ = a.SpliceMaps().Flows(func(_ maps.Conn, f bpf.Flow) bool { n += f.Chunks; return true })
		return n
	}
	for carried = count(); count() == carried; {
		more <- struct{}{}
		read()
	}
	if n := chunks(); n != 0 {
		t.Errorf("%d chunks of another backend's connection counted", n)
	}
}

// slowly is a log that takes its time over each backend that is removed.
type slowly struct{ slog.Handler }

func (slowly) Enabled(context.Context, slog.Level) bool { return true }

func (slowly) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "backend removed" {
		time.Sleep(300 * time.Millisecond) // long enough for requests, and for looks at what is held
	}
	return nil
}

// TestReloadOfAllBackendsRefusesNobody: the new ones are there before the old ones leave,
// however long that takes; and no scrape fails where both have one name.
func TestReloadOfAllBackendsRefusesNobody(t *testing.T) {
	for name, names := range map[string][2]string{"others": {"a", "b"}, "of the same name": {"a", "a"}} {
		t.Run(name, func(t *testing.T) {
			cfg := func(name string) *config.Config {
				return settings(t, map[string]any{"backends": []map[string]any{
					{"name": name + "0", "url": full(t)}, {"name": name + "1", "url": full(t)},
				}})
			}
			a, _ := startLogging(t, cfg(names[0]), slog.New(slowly{slog.DiscardHandler}))
			next, reloaded := cfg(names[1]), make(chan error, 1)
			go func() { reloaded <- a.Reload(next) }()
			for n := 0; ; n++ {
				got := <-later("http://"+a.Addr()+"/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":"word"}]}`)
				if !strings.Contains(got, "word") {
					t.Fatalf("request %d during the reload was answered %.200q", n, got)
				}
				if _, err := a.registry.Gather(); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-reloaded:
					if err != nil || n == 0 {
						t.Errorf("reload: %v, %d requests meanwhile", err, n)
					}
					return
				default:
				}
			}
		})
	}
}
