package stream

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestSpecTravelsInABody(t *testing.T) {
	want := Spec{Stream: 4_000_000_000, Tokens: 300, Bytes: 220, Every: 20 * time.Millisecond, Hold: 5, Spread: true}
	for _, size := range []int{0, 1000, 220_000} {
		body := want.Body(size)
		if asked := (Spec{Responses: true}).Body(size); !json.Valid(body) || !json.Valid(asked) {
			t.Fatalf("not JSON: %.300s or %.300s", body, asked)
		}
		if size > 0 && len(body) != size && size > 400 {
			t.Errorf("asked for %d bytes, got %d", size, len(body))
		}
		got, ok := ParseSpec(body)
		if !ok || got != want {
			t.Errorf("got %+v, %t, want %+v", got, ok, want)
		}
		// A router that writes the JSON anew must not lose it.
		var v map[string]any
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatal(err)
		}
		again, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := ParseSpec(again); !ok || got != want {
			t.Errorf("after a rewrite: got %+v, %t, want %+v", got, ok, want)
		}
	}
}

func TestBadSpecsAreRefused(t *testing.T) {
	for name, body := range map[string]string{
		"none":       `{"model":"bench"}`,
		"cut":        `bench stream=1 tokens=`,
		"too small":  `bench stream=1 tokens=1 bytes=10 every=1 hold=0 spread=false`,
		"no pace":    `bench stream=1 tokens=1 bytes=220 every=0 hold=0 spread=false`,
		"negative":   `bench stream=1 tokens=-1 bytes=220 every=1 hold=0 spread=false`,
		"no numbers": `bench stream=a tokens=b bytes=c every=d hold=e spread=f`,
	} {
		if s, ok := ParseSpec([]byte(body)); ok {
			t.Errorf("%s: got %+v", name, s)
		}
	}
}

func TestEventsAreOfTheirSizeAndJSON(t *testing.T) {
	for name, d := range map[string]*dialect{"chat": &chat, "responses": &responses} {
		if d.minBytes() > MinBytes || MinBytes > 220 {
			t.Errorf("%s: a token has %d bytes at least, %d are asked for", name, d.minBytes(), MinBytes)
		}
		for _, size := range []int{MinBytes, 220, 1000} {
			e := d.event(nil, mark{1, 5, 99}, size)
			if len(e) != size {
				t.Errorf("%s: asked for %d bytes, got %d", name, size, len(e))
			}
		}
		for i, e := range [][]byte{
			d.event(nil, mark{1, 0, 99}, 220), d.event(nil, mark{1, 5, 99}, 220), d.end(nil, mark{1, 6, 99}),
		} {
			data, ok := strings.CutPrefix(strings.TrimPrefix(string(e), []string{d.roleName, d.tokenName, d.finishName}[i]), "data: ")
			if !ok || !json.Valid([]byte(data)) || !strings.HasSuffix(data, "\n\n") {
				t.Errorf("%s: not an event with JSON: %q", name, e)
			}
			if m, ok := d.mark(e); !ok || m.stream != 1 || m.stamp != 99 {
				t.Errorf("%s: watermark %+v, %t", name, m, ok)
			}
		}
	}
}

func TestWireBytes(t *testing.T) {
	for n, want := range map[int]int{1: 1 + 5, 15: 15 + 5, 16: 16 + 6, 255: 255 + 6, 256: 256 + 7} {
		if got := wireBytes(n); got != want {
			t.Errorf("%d bytes take %d on the wire, want %d", n, got, want)
		}
	}
}

func TestDoneWireBytes(t *testing.T) {
	if got, want := (Spec{}).DoneWireBytes(), wireBytes(len("data: [DONE]\n\n")); got != want {
		t.Errorf("chat: got %d, want %d", got, want)
	}
	if got := (Spec{Responses: true}).DoneWireBytes(); got != 0 {
		t.Errorf("responses: got %d of an end marker that there is not", got)
	}
}

func TestTicksAreSharedUnlessSpread(t *testing.T) {
	s := Spec{Stream: 1, Every: 20 * time.Millisecond}
	every := int64(s.Every)
	for _, now := range []int64{0, 1, every - 1, every, 7*every + 3} {
		due := s.first(now)
		if due <= now || due > now+every || due%every != 0 {
			t.Errorf("at %d: due at %d", now, due)
		}
	}
	phases := map[int64]bool{}
	for i := range uint32(100) {
		s := Spec{Stream: i, Every: 20 * time.Millisecond, Spread: true}
		due := s.first(7 * every)
		if due <= 7*every || due > 8*every {
			t.Errorf("stream %d: due at %d", i, due)
		}
		phases[due%every] = true
	}
	if len(phases) < 90 {
		t.Errorf("100 spread streams have %d phases", len(phases))
	}
}
