package pin

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// MinKeyBytes is the least length of a tag key.
const MinKeyBytes = 32

const (
	maxKeyBytes = 64 << 10
	prefixLen   = len("resp_")
	maxSite     = 63 // of a DNS-1123 label
	clusterLen  = 8
	macLen      = 16
	// maxStamp is the longest "<site>.<cluster>.<mac>.".
	maxStamp = maxSite + 1 + clusterLen + 1 + macLen + 1
)

// The errors of a Tagger's settings.
var (
	ErrSite = errors.New("pin: site is not a DNS-1123 label")
	ErrKey  = errors.New("pin: tag key is shorter than 32 bytes")
)

// ValidSite says whether s is a DNS-1123 label: 1 to 63 of a-z, 0-9 and '-',
// the first and the last no '-'.
func ValidSite(s string) bool {
	if s == "" || len(s) > maxSite || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLower(c) && !isDigit(c) && c != '-' {
			return false
		}
	}
	return true
}

// LoadKey reads a tag key: all bytes of the file, a newline at its end
// included, at least MinKeyBytes and at most 64 KiB of them. It wraps the
// file's error, or ErrKey for a short one.
func LoadKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open tag key: %w", err)
	}
	key, err := io.ReadAll(io.LimitReader(f, maxKeyBytes+1))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read tag key: %w", err)
	case len(key) > maxKeyBytes:
		return nil, fmt.Errorf("read tag key: %s: over %d bytes", path, maxKeyBytes)
	case len(key) < MinKeyBytes:
		return nil, fmt.Errorf("%w: %s has %d", ErrKey, path, len(key))
	}
	return key, nil
}

// ClusterMark is how a tag names a backend: the first 4 bytes of the SHA-256
// of its name as 8 lowercase hex digits. It does not depend on the site.
func ClusterMark(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:clusterLen/2])
}

// Tagger makes and checks tags. It is immutable and safe for concurrent use.
type Tagger struct {
	site string
	keys [][]byte
}

// NewTagger returns a Tagger for the site. The first key signs, every key is
// accepted. Without keys, macs are empty and any well-formed tag is accepted.
// Keys are copied. Errors: ErrSite, ErrKey (wrapped).
func NewTagger(site string, keys [][]byte) (*Tagger, error) {
	if !ValidSite(site) {
		return nil, fmt.Errorf("%w: %q", ErrSite, site)
	}
	t := &Tagger{site: site}
	for i, k := range keys {
		if len(k) < MinKeyBytes {
			return nil, fmt.Errorf("%w: key %d has %d", ErrKey, i, len(k))
		}
		t.keys = append(t.keys, append([]byte(nil), k...))
	}
	return t, nil
}

// Site is the site that the tags name.
func (t *Tagger) Site() string { return t.site }

// Keyed says whether tags carry a mac. If not, a client can aim a request at
// any backend that could serve it: worth a warning.
func (t *Tagger) Keyed() bool { return len(t.keys) > 0 }

// Stamp is what Tag inserts behind the prefix: "<site>.<cluster>.<mac>.". It is
// the same for all ids of one backend: make it once per backend and key.
func (t *Tagger) Stamp(cluster string) string {
	if len(t.keys) == 0 {
		return t.site + "." + cluster + ".."
	}
	return t.site + "." + cluster + "." + mac(t.keys[0], t.site, cluster) + "."
}

// Tag returns the id with the tag of the cluster (a ClusterMark). What is
// neither resp_ nor conv_ with something behind it, or is tagged already by
// whomever, comes back as it is.
func (t *Tagger) Tag(cluster, id string) string {
	if len(id) <= prefixLen || !hasPrefix(id) {
		return id
	}
	if _, tagged := Parse(id); tagged {
		return id
	}
	return id[:prefixLen] + t.Stamp(cluster) + id[prefixLen:]
}

// Valid says whether the tag's mac is that of its site and cluster under one of
// the keys. The mac covers neither the prefix nor the id.
func (t *Tagger) Valid(tag Tag) bool {
	if len(t.keys) == 0 {
		return true
	}
	ok := 0
	for _, k := range t.keys {
		ok |= subtle.ConstantTimeCompare([]byte(tag.MAC), []byte(mac(k, tag.Site, tag.Cluster)))
	}
	return ok == 1
}

func mac(key []byte, site, cluster string) string {
	var msg [maxSite + 1 + clusterLen]byte
	h := hmac.New(sha256.New, key)
	h.Write(append(append(append(msg[:0], site...), 0), cluster...))
	return hex.EncodeToString(h.Sum(nil)[:macLen/2])
}

// Tag is a tagged id in its parts; they alias the string parsed.
type Tag struct {
	Prefix  string // "resp_" or "conv_"
	Site    string // a DNS-1123 label
	Cluster string // 8 lowercase hex digits
	MAC     string // empty or 16 lowercase hex digits; Parse does not check it
	ID      string // what follows the third period; not empty, may hold periods
}

// Stripped is the id without its tag, as the engine knows it.
func (t Tag) Stripped() string { return t.Prefix + t.ID }

// stamp is the length of "<site>.<cluster>.<mac>.".
func (t Tag) stamp() int { return len(t.Site) + 1 + len(t.Cluster) + 1 + len(t.MAC) + 1 }

// Parse splits a tagged id at its first three periods. It reports false for
// anything not of a tag's form, which is then an untagged id. It allocates
// nothing.
func Parse(id string) (Tag, bool) {
	if !hasPrefix(id) {
		return Tag{}, false
	}
	t := Tag{Prefix: id[:prefixLen]}
	var ok1, ok2, ok3 bool
	t.Site, id, ok1 = strings.Cut(id[prefixLen:], ".")
	t.Cluster, id, ok2 = strings.Cut(id, ".")
	t.MAC, t.ID, ok3 = strings.Cut(id, ".")
	if !ok1 || !ok2 || !ok3 || t.ID == "" || !ValidSite(t.Site) ||
		!isHex(t.Cluster, clusterLen) || t.MAC != "" && !isHex(t.MAC, macLen) {
		return Tag{}, false
	}
	return t, true
}

func hasPrefix(id string) bool {
	return strings.HasPrefix(id, "resp_") || strings.HasPrefix(id, "conv_")
}

func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range n {
		if c := s[i]; !isDigit(c) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
