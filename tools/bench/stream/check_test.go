package stream

import (
	"slices"
	"testing"
	"time"
)

var testSpec = Spec{Stream: 7, Tokens: 10, Bytes: 220, Every: time.Millisecond}

// events returns the body of a whole response of s, event by event.
func events(s Spec) (all [][]byte) {
	d := s.dialect()
	for seq := range uint32(s.Tokens) + 1 {
		all = append(all, d.event(nil, mark{s.Stream, seq, int64(seq) * 1000}, s.Bytes))
	}
	all = append(all, d.end(nil, mark{s.Stream, uint32(s.Tokens) + 1, 11000}))
	if d.done != "" {
		all = append(all, []byte(d.done))
	}
	return all
}

func check(s Spec, body []byte, step int) (Faults, string, []Chunk) {
	c := NewChecker(s)
	var got []Chunk
	for len(body) > 0 {
		n := min(step, len(body))
		c.Feed(body[:n], 1_000_000, func(ch Chunk) { got = append(got, ch) })
		body = body[n:]
	}
	f, first := c.Close()
	return f, first, got
}

func TestExactResponseInAnyPieces(t *testing.T) {
	s := testSpec
	exactInAnyPieces(t, s)
	s.Responses = true
	exactInAnyPieces(t, s)
}

func exactInAnyPieces(t *testing.T, testSpec Spec) {
	t.Helper()
	body := slices.Concat(events(testSpec)...)
	for _, step := range []int{1, 2, 3, 7, 219, 220, 221, 500, len(body)} {
		f, first, got := check(testSpec, body, step)
		if f.Any() || first != "" {
			t.Fatalf("pieces of %d bytes: %s: %s", step, f, first)
		}
		if len(got) != testSpec.Tokens+2 {
			t.Fatalf("pieces of %d bytes: %d chunks", step, len(got))
		}
		for i, ch := range got {
			if ch.Seq != uint32(i) || ch.Latency != time.Duration(1_000_000-i*1000) {
				t.Errorf("pieces of %d bytes: chunk %d is %+v", step, i, ch)
			}
		}
		if got[1].Wire != 220+2+4 { // "dc" CRLF, the event, CRLF
			t.Errorf("a chunk of 220 bytes takes %d on the wire", got[1].Wire)
		}
	}
}

func TestCheckerFindsFaults(t *testing.T) {
	foreign := chat.event(nil, mark{8, 4, 0}, testSpec.Bytes)
	for name, tc := range map[string]struct {
		change func(e [][]byte) [][]byte
		want   Faults
	}{
		"lost":              {func(e [][]byte) [][]byte { return slices.Delete(e, 4, 5) }, Faults{Lost: 1}},
		"three lost":        {func(e [][]byte) [][]byte { return slices.Delete(e, 4, 7) }, Faults{Lost: 3}},
		"first lost":        {func(e [][]byte) [][]byte { return e[1:] }, Faults{Lost: 1}},
		"last lost":         {func(e [][]byte) [][]byte { return slices.Delete(e, 10, 11) }, Faults{Lost: 1}},
		"finish lost":       {func(e [][]byte) [][]byte { return slices.Delete(e, 11, 12) }, Faults{Lost: 1}},
		"doubled":           {func(e [][]byte) [][]byte { return slices.Insert(e, 5, e[4]) }, Faults{Doubled: 1}},
		"doubled later":     {func(e [][]byte) [][]byte { return slices.Insert(e, 9, e[2]) }, Faults{Doubled: 1}},
		"reordered":         {func(e [][]byte) [][]byte { e[4], e[5] = e[5], e[4]; return e }, Faults{Reordered: 1}},
		"far reordered":     {func(e [][]byte) [][]byte { e[2], e[7] = e[7], e[2]; return e }, Faults{Reordered: 5}},
		"finish reordered":  {func(e [][]byte) [][]byte { e[10], e[11] = e[11], e[10]; return e }, Faults{Reordered: 1}},
		"foreign":           {func(e [][]byte) [][]byte { return slices.Insert(e, 4, foreign) }, Faults{Foreign: 1}},
		"foreign instead":   {func(e [][]byte) [][]byte { e[4] = foreign; return e }, Faults{Foreign: 1, Lost: 1}},
		"flipped bit":       {func(e [][]byte) [][]byte { e[4][210] ^= 1; return e }, Faults{Damaged: 1}},
		"flipped in mark":   {func(e [][]byte) [][]byte { e[4][30] = 'x'; return e }, Faults{Damaged: 1, Lost: 1}},
		"huge number":       {func(e [][]byte) [][]byte { copy(e[4][31:], "ffffffff"); return e }, Faults{Damaged: 1, Lost: 1}},
		"filler cut":        {func(e [][]byte) [][]byte { e[4] = slices.Delete(slices.Clone(e[4]), 176, 177); return e }, Faults{Damaged: 1}},
		"garbage event":     {func(e [][]byte) [][]byte { return slices.Insert(e, 4, []byte("data: {}\n\n")) }, Faults{Damaged: 1}},
		"event cut":         {func(e [][]byte) [][]byte { e[4] = e[4][:100]; return e }, Faults{Damaged: 1, Lost: 1}},
		"cut off":           {func(e [][]byte) [][]byte { return e[:6] }, Faults{Truncated: 1}},
		"cut off inside":    {func(e [][]byte) [][]byte { e[6] = e[6][:50]; return e[:7] }, Faults{Truncated: 1, Damaged: 1}},
		"nothing":           {func([][]byte) [][]byte { return nil }, Faults{Truncated: 1}},
		"no event in sight": {func([][]byte) [][]byte { return [][]byte{make([]byte, testSpec.Bytes+MinBytes+chat.maxTail()+1)} }, Faults{Damaged: 1, Truncated: 1}},
		"after the end":     {func(e [][]byte) [][]byte { return append(e, e[10]) }, Faults{Damaged: 1}},
		"too many tokens": {func(e [][]byte) [][]byte {
			e[11] = chat.event(nil, mark{7, 11, 0}, testSpec.Bytes)
			return slices.Insert(e, 12, chat.end(nil, mark{7, 12, 0}))
		}, Faults{Damaged: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			body := slices.Concat(tc.change(events(testSpec))...)
			for _, step := range []int{1, 100, 1 << 20} {
				f, first, _ := check(testSpec, body, step)
				if f != tc.want {
					t.Errorf("pieces of %d bytes: got %s (%s), want %s", step, f, first, tc.want)
				}
				if first == "" {
					t.Errorf("pieces of %d bytes: no word about what was wrong", step)
				}
			}
		})
	}
}

// TestResponsesEndWithTheirFinish: there is no end marker to wait for.
func TestResponsesEndWithTheirFinish(t *testing.T) {
	s := testSpec
	s.Responses = true
	all := events(s)
	for name, tc := range map[string]struct {
		events [][]byte
		want   Faults
	}{
		"no finish":          {all[:len(all)-1], Faults{Truncated: 1}},
		"a lost token":       {slices.Delete(slices.Clone(all), 4, 5), Faults{Lost: 1}},
		"more after the end": {append(slices.Clone(all), all[3]), Faults{Damaged: 1}},
		"a chat's end":       {append(slices.Clone(all), []byte(chat.done)), Faults{Damaged: 1}},
		"another name":       {append(slices.Clone(all[:3]), append([][]byte{slices.Concat([]byte(s.dialect().finishName), all[3][len(s.dialect().tokenName):])}, all[4:]...)...), Faults{Damaged: 1}},
	} {
		if got, first, _ := check(s, slices.Concat(tc.events...), 64); got != tc.want {
			t.Errorf("%s: got %s (%s), want %s", name, got, first, tc.want)
		}
	}
}

func TestStoppedEarlyIsExact(t *testing.T) {
	e := events(testSpec)[:5]
	e = append(e, chat.end(nil, mark{7, 5, 0}), []byte(chat.done))
	if f, first, _ := check(testSpec, slices.Concat(e...), 64); f.Any() {
		t.Errorf("%s: %s", f, first)
	}
}

func TestResetForgetsTheLastResponse(t *testing.T) {
	c := NewChecker(testSpec)
	c.Feed([]byte("data: half"), 0, func(Chunk) {})
	if f, _ := c.Close(); !f.Any() {
		t.Fatal("half an event is exact")
	}
	next := testSpec
	next.Stream = 9
	c.Reset(next)
	c.Feed(slices.Concat(events(next)...), 0, func(Chunk) {})
	if f, first := c.Close(); f.Any() || first != "" {
		t.Errorf("%s: %s", f, first)
	}
}

// FuzzChecker: no bytes make it fail, and only the one right body is exact.
func FuzzChecker(f *testing.F) {
	s := Spec{Stream: 1, Tokens: 2, Bytes: 220, Every: 1}
	good := slices.Concat(events(s)...)
	f.Add(good, 3)
	f.Add(good[:300], 7)
	f.Add([]byte("data: [DONE]\n\ndata: [DONE]\n\n"), 1)
	f.Fuzz(func(t *testing.T, body []byte, step int) {
		faults, _, got := check(s, body, max(1, step))
		if !faults.Any() && len(got) < 1 && len(body) > len(chat.done)+MinBytes {
			t.Errorf("exact without an event: %q", body)
		}
		if !faults.Any() && !sameButStamps(body, s) {
			t.Errorf("called exact: %q", body)
		}
	})
}

// sameButStamps is the slow, plain way: build every body that is right for the
// stamps that body carries, and compare.
func sameButStamps(body []byte, s Spec) bool {
	for tokens := 0; tokens <= s.Tokens+1; tokens++ {
		var want []byte
		for seq := range uint32(tokens) {
			want = chat.event(want, mark{s.Stream, seq, stampAt(body, len(want))}, s.Bytes)
		}
		want = chat.end(want, mark{s.Stream, uint32(tokens), stampAt(body, len(want))})
		want = append(want, chat.done...)
		if string(want) == string(body) {
			return true
		}
	}
	return false
}

func stampAt(body []byte, at int) int64 {
	if at > len(body) {
		return 0
	}
	m, _ := chat.mark(body[at:])
	return m.stamp
}
