package key

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/golden.json anew: every key of every agent changes with it")

// golden is one line of testdata/golden.json: a body and its keys under
// testSecret. A text FILL in the body stands for Fill bytes of goldenText.
type golden struct {
	Name        string   `json:"name"`
	Path        string   `json:"path"`
	TokenArrays bool     `json:"token_arrays,omitempty"`
	Body        string   `json:"body"`
	Fill        int      `json:"fill,omitempty"`
	Bytes       int      `json:"bytes"`
	Reason      string   `json:"reason"`
	Count       int      `json:"count"`
	Keys        []string `json:"keys"` // the first eight, and the last if there are more
}

const goldenText = "The quick brown fox jumps over the lazy dog 0123456789. "

func (g *golden) read(p *Prompt) {
	body := g.Body
	if g.Fill > 0 {
		body = strings.ReplaceAll(body, "FILL", fill(goldenText, g.Fill))
	}
	NewHasher(testSecret, Options{TokenArrays: g.TokenArrays}).Read(ParsePath(g.Path), []byte(body), p)
}

func goldenKeys(keys []Key) []string {
	out := []string{}
	for i, k := range keys {
		if i < 8 || i == len(keys)-1 {
			out = append(out, fmt.Sprintf("%016x", uint64(k)))
		}
	}
	return out
}

// TestGolden holds keys in place: agents of two builds that share a hash key
// must agree, so a change here needs a new format constant too.
func TestGolden(t *testing.T) {
	const file = "testdata/golden.json"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []golden
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 20 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for i := range vectors {
		g := &vectors[i]
		var p Prompt
		g.read(&p)
		keys := goldenKeys(p.Keys)
		if *update {
			g.Bytes, g.Reason, g.Count, g.Keys = p.Bytes, p.Reason.String(), len(p.Keys), keys
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			if p.Bytes != g.Bytes || p.Reason.String() != g.Reason || len(p.Keys) != g.Count || !slices.Equal(keys, g.Keys) {
				t.Errorf("got %d bytes, %v, %d keys %v\nwant %d bytes, %s, %d keys %v",
					p.Bytes, p.Reason, len(p.Keys), keys, g.Bytes, g.Reason, g.Count, g.Keys)
			}
		})
	}
	if *update {
		out, err := json.MarshalIndent(vectors, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(out, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
