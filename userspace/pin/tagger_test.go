package pin

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	keyA = bytes.Repeat([]byte("a"), 32)
	keyB = bytes.Repeat([]byte("b"), 48)
)

func tagger(tb testing.TB, site string, keys ...[]byte) *Tagger {
	tb.Helper()
	t, err := NewTagger(site, keys)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestValidSite(t *testing.T) {
	for site, want := range map[string]bool{
		"fra": true, "fra-1": true, "0": true, "a--b": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "Fra": false, "fra.1": false, "fra_1": false,
		"fr\xc3\xa4": false, "a b": false, strings.Repeat("a", 64): false,
	} {
		if got := ValidSite(site); got != want {
			t.Errorf("ValidSite(%q) = %v", site, got)
		}
		if _, err := NewTagger(site, nil); errors.Is(err, ErrSite) == want {
			t.Errorf("NewTagger(%q): %v", site, err)
		}
	}
}

func TestLoadKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if _, err := LoadKey(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, c := range []struct {
		n   int
		ok  bool
		err error
	}{{0, false, ErrKey}, {31, false, ErrKey}, {32, true, nil}, {maxKeyBytes, true, nil}, {maxKeyBytes + 1, false, nil}} {
		want := bytes.Repeat([]byte{'\n'}, c.n)
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := LoadKey(file)
		if (err == nil) != c.ok || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%d bytes: %v", c.n, err)
		}
		if c.ok && !bytes.Equal(key, want) {
			t.Errorf("%d bytes: the key is not the file's bytes", c.n)
		}
	}
	if _, err := NewTagger("a", [][]byte{keyA, keyA[:31]}); !errors.Is(err, ErrKey) {
		t.Errorf("short second key: %v", err)
	}
}

// The form of a tag is a contract with other gateways of the site and with
// clients that keep ids for long.
func TestTagForm(t *testing.T) {
	sum := sha256.Sum256([]byte("pool-a"))
	cluster := hex.EncodeToString(sum[:4])
	if got := ClusterMark("pool-a"); got != cluster {
		t.Errorf("ClusterMark = %s, want %s", got, cluster)
	}
	h := hmac.New(sha256.New, keyA)
	h.Write([]byte("fra-1\x00" + cluster))
	mac := hex.EncodeToString(h.Sum(nil)[:8])
	if got, want := tagger(t, "fra-1", keyA, keyB).Tag(cluster, "resp_12"), "resp_fra-1."+cluster+"."+mac+".12"; got != want {
		t.Errorf("with a key: %s, want %s", got, want)
	}
	if got, want := tagger(t, "fra-1").Tag(cluster, "conv_12"), "conv_fra-1."+cluster+"..12"; got != want {
		t.Errorf("without: %s, want %s", got, want)
	}
}

func TestTagOnlyWhatIsAnUntaggedID(t *testing.T) {
	tg := tagger(t, "fra", keyA)
	for _, id := range []string{"", "resp", "resp_", "conv_", "msg_1", "Resp_1", " resp_1",
		"resp_fra.0a1b2c3d..1", "conv_other.0a1b2c3d.0123456789abcdef.1"} {
		if got := tg.Tag("0a1b2c3d", id); got != id {
			t.Errorf("Tag(%q) = %q", id, got)
		}
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		id   string
		want Tag
		ok   bool
	}{
		{"resp_a.0a1b2c3d..x", Tag{"resp_", "a", "0a1b2c3d", "", "x"}, true},
		{"conv_a.0a1b2c3d.0123456789abcdef.x.y.z", Tag{"conv_", "a", "0a1b2c3d", "0123456789abcdef", "x.y.z"}, true},
		{"resp_a.0a1b2c3d...", Tag{"resp_", "a", "0a1b2c3d", "", "."}, true},
		{id: "resp_x"},
		{id: "msg_a.0a1b2c3d..x"},
		{id: "resp_a.0a1b2c3d.x"},
		{id: "resp_a.0a1b2c3d.."},
		{id: "resp_.0a1b2c3d..x"},
		{id: "resp_A.0a1b2c3d..x"},
		{id: "resp_a.0A1b2c3d..x"},
		{id: "resp_a.0a1b2c3..x"},
		{id: "resp_a.0a1b2c3dd..x"},
		{id: "resp_a.0a1b2c3d.0123456789abcde.x"},
		{id: "resp_a.0a1b2c3d.0123456789abcdeF.x"},
	} {
		got, ok := Parse(c.id)
		if got != c.want || ok != c.ok {
			t.Errorf("Parse(%q) = %+v, %v", c.id, got, ok)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Parse("resp_a.0a1b2c3d.0123456789abcdef.x") }); n != 0 {
		t.Errorf("Parse allocates %v times", n)
	}
}

func TestValid(t *testing.T) {
	cluster := ClusterMark("a")
	id := tagger(t, "fra", keyA).Tag(cluster, "resp_1")
	tag, _ := Parse(id)
	steered, foreign, forged, empty, moved := tag, tag, tag, tag, tag
	steered.Cluster = ClusterMark("b")
	foreign.Site = "ams"
	forged.MAC = "0123456789abcdef"
	empty.MAC = ""
	moved.Prefix, moved.ID = "conv_", "2"
	for _, c := range []struct {
		name string
		tag  Tag
		keys [][]byte
		want bool
	}{
		{"own", tag, [][]byte{keyA}, true},
		{"rotated: old key accepted", tag, [][]byte{keyB, keyA}, true},
		{"rotated: old key gone", tag, [][]byte{keyB}, false},
		{"steered to another cluster", steered, [][]byte{keyA}, false},
		{"steered to another site", foreign, [][]byte{keyA}, false},
		{"forged", forged, [][]byte{keyA, keyB}, false},
		{"no mac", empty, [][]byte{keyA}, false},
		{"moved to another id: the mac does not cover it", moved, [][]byte{keyA}, true},
		{"no key, no mac", empty, nil, true},
		{"no key, any mac", forged, nil, true},
	} {
		if got := tagger(t, "fra", c.keys...).Valid(c.tag); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if tagger(t, "fra").Keyed() || !tagger(t, "fra", keyA).Keyed() {
		t.Error("Keyed is wrong")
	}
}

func TestNewTaggerCopiesKeys(t *testing.T) {
	key := bytes.Clone(keyA)
	tg := tagger(t, "fra", key)
	before := tg.Stamp("0a1b2c3d")
	key[0]++
	if after := tg.Stamp("0a1b2c3d"); after != before {
		t.Error("the key is shared with the caller")
	}
}

var refTag = regexp.MustCompile(`(?s)^(resp_|conv_)([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)\.([0-9a-f]{8})\.(|[0-9a-f]{16})\.(.+)$`)

func FuzzParse(f *testing.F) {
	f.Add("resp_a.0a1b2c3d..x", "x")
	f.Add("conv_fra-1.0a1b2c3d.0123456789abcdef.x.y", "resp_.")
	f.Add("resp_a-.0a1b2c3d...", "a.b..c")
	f.Fuzz(func(t *testing.T, id, rest string) {
		tag, ok := Parse(id)
		m := refTag.FindStringSubmatch(id)
		if ok != (m != nil) {
			t.Fatalf("Parse(%q) = %v", id, ok)
		}
		if ok && tag != (Tag{m[1], m[2], m[3], m[4], m[5]}) {
			t.Fatalf("Parse(%q) = %+v", id, tag)
		}
		for _, keys := range [][][]byte{nil, {keyA}} {
			tg := tagger(t, "fra-1", keys...)
			raw := "conv_" + rest
			if _, tagged := Parse(raw); tagged || rest == "" {
				continue
			}
			tag, ok := Parse(tg.Tag(ClusterMark("b"), raw))
			if !ok || !tg.Valid(tag) || tag.Stripped() != raw || tag.Site != "fra-1" || tag.Cluster != ClusterMark("b") {
				t.Fatalf("tag of %q: %+v, %v", raw, tag, ok)
			}
			if again := tg.Tag(ClusterMark("c"), tg.Tag(ClusterMark("b"), raw)); again != tg.Tag(ClusterMark("b"), raw) {
				t.Fatalf("tagged twice: %s", again)
			}
		}
	})
}
