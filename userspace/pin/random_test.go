package pin

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// generator writes random JSON that is full of what the rewriter looks for.
// Mutated bytes seldom stay JSON, so this reaches further than a fuzzer.
type generator struct {
	*rand.Rand
	b strings.Builder
}

const rootDepth = 4

func (g *generator) pick(s ...string) string { return s[g.IntN(len(s))] }

func (g *generator) space() {
	if g.IntN(6) == 0 {
		g.b.WriteString(g.pick(" ", "\t", "\n", "\r\n", "  "))
	}
}

// str writes a string, some of its characters as escapes.
func (g *generator) str(s string) {
	g.b.WriteByte('"')
	escaped := g.IntN(5) == 0
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			g.b.WriteString(`\` + string(c))
		case c < ' ' || escaped && c < 0x10000 && g.IntN(3) == 0:
			fmt.Fprintf(&g.b, g.pick(`\u%04x`, `\u%04X`), c)
		default:
			g.b.WriteRune(c)
		}
	}
	g.b.WriteByte('"')
}

func (g *generator) text() string {
	var s strings.Builder
	for range 1 + g.IntN(4)*g.IntN(4) {
		s.WriteString(g.pick("resp_1", "conv_1", "resp_", "conv_", "res", "p_", "x", ".", "-", "_", " ", "'", `"`, `\`, "\n", "é", "😀",
			"resp_fra.0a1b2c3d..1", "conv_fra.0a1b2c3d.0123456789abcdef.1", "resp_fra.0a1b2c3d..", "{", "}", "[", "]", ",", ":",
			strings.Repeat("a", g.IntN(110))))
	}
	return s.String()
}

func (g *generator) value(depth int) {
	g.space()
	switch k := g.IntN(10); {
	case depth < rootDepth && (k < 4 || depth == 0):
		if g.IntN(2) == 0 {
			g.str(g.pick("resp_", "conv_") + g.text())
		} else {
			g.str(g.text())
		}
	case depth < rootDepth && k < 5:
		g.b.WriteString(g.pick("null", "true", "-1.5e3", "0"))
	case k < 9 || depth == rootDepth:
		g.b.WriteByte('{')
		g.space()
		for i := range g.IntN(6) {
			if i > 0 {
				g.b.WriteByte(',')
			}
			g.space()
			g.str(g.pick("id", "previous_response_id", "response_id", "conversation_id", "conversation", "response", "error", "message",
				"detail", "output", "metadata", "x", `\`, g.text()))
			g.space()
			g.b.WriteByte(':')
			g.value(depth - 1)
		}
		g.b.WriteByte('}')
	default:
		g.b.WriteByte('[')
		for i := range g.IntN(4) {
			if i > 0 {
				g.b.WriteByte(',')
			}
			g.value(depth - 1)
		}
		g.b.WriteByte(']')
	}
	g.space()
}

func TestRewriterRandomDocuments(t *testing.T) {
	g := generator{Rand: rand.New(rand.NewPCG(1, 2))}
	tags, names := 0, 0
	for range 6000 {
		g.b.Reset()
		g.value(rootDepth)
		in := []byte(g.b.String())
		form := Form(1 + g.IntN(2))
		out := checkPieces(t, form, in, g.Uint32())
		want, ok := decode(in)
		if !ok {
			t.Fatalf("the generator writes no JSON: %q", in)
		}
		want = refDocument(want, form == FormError)
		if got, ok := decode(out); !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q became %q, want %v", in, out, want)
		}
		tags += (len(out) - len(in)) / len(testStamp)

		if !onlyNames(in) || form != FormJSON {
			continue
		}
		back := StripBody(out, "zz9", ReadBody(out).Spans...)
		if string(back) != string(in) {
			t.Fatalf("%q came back as %q", in, back)
		}
		names += len(out) - len(in)
	}
	if tags < 1000 || names < 1000 {
		t.Errorf("only %d ids and %d bytes of stripped tags: the generator misses its aim", tags, names)
	}
}
