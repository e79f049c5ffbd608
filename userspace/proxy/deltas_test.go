package proxy

import (
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// stamper is a Pinner whose Rewriter puts a mark before each event, or, where it
// is not asked for boundaries, before each piece.
type stamper struct {
	NoPin
	plain bool
}

func (s stamper) Readable(PinRequest) bool { return true }
func (s stamper) Response(string, PinRequest, int, http.Header) (Rewriter, Refusal) {
	if s.plain {
		return upper("x"), RefusalNone
	}
	return &stamped{at: true}, RefusalNone
}

type stamped struct {
	at   bool // between two events
	last byte
}

func (s *stamped) Append(dst, p []byte) []byte {
	for _, c := range p {
		if s.at {
			dst = append(dst, ": mark\n"...)
		}
		s.at, s.last = c == '\n' && s.last == '\n', c
		dst = append(dst, c)
	}
	return dst
}
func (s *stamped) Finish(dst []byte) []byte { return dst }
func (s *stamped) AtBoundary() bool         { return s.at }

// TestSplicerOfARewrittenStream hears what was read of the backend, not what was
// written, and only between two events; of any other rewritten body nothing.
func TestSplicerOfARewrittenStream(t *testing.T) {
	for _, tc := range []struct {
		name   string
		pinner stamper
		media  string
		want   string
		deltas bool
	}{
		{"events", stamper{}, "text/event-stream", "begin,flushed 33,flushed 63,end", true},
		{"a rewriter that knows no events", stamper{plain: true}, "text/event-stream", "begin,end", false},
		{"no events", stamper{}, "application/json", "begin,end", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := new(calls)
			g := newRig(t, func(o *Options) { o.Splicer, o.Pinner = s, tc.pinner })
			pieces := []string{"event: response.x.delta\ndata: 1\n\n", "event: response.x.delta\n", "d: 1", "\n\n"}
			ahead := make(chan bool)
			g.add("a", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.media)
				for _, p := range pieces {
					_, _ = io.WriteString(w, p)
					_ = http.NewResponseController(w).Flush()
					<-ahead
				}
			})
			resp, err := g.client.Post("http://"+g.addr+"/v1/responses", "application/json", strings.NewReader(`{"input":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			rw, _ := tc.pinner.Response("", PinRequest{}, 200, nil)
			for _, p := range pieces {
				want := rw.Append(nil, []byte(p))
				got := make([]byte, len(want))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != string(want) {
					t.Fatalf("got %q, %v, want %q", got, err, want)
				}
				ahead <- true
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			g.idle()
			if got := strings.Join(s.log, ","); got != tc.want {
				t.Errorf("calls %s, want %s", got, tc.want)
			}
			if want := (ResponseInfo{ClientHTTP11: true, BackendChunked: true, ClientChunked: true, Rewritten: true, Deltas: tc.deltas}); !reflect.DeepEqual(s.info, want) {
				t.Errorf("info %+v, want %+v", s.info, want)
			}
		})
	}
}
