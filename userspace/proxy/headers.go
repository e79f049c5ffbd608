package proxy

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/http"
	"net/textproto"
	"strings"
)

// hopByHop are the fields that mean one connection only (RFC 9110, 7.6.1). TE
// and Trailer are handled where they are needed.
var hopByHop = map[string]bool{
	"Connection":          true,
	"Proxy-Connection":    true,
	"Keep-Alive":          true,
	"Proxy-Authenticate":  true,
	"Proxy-Authorization": true,
	"Te":                  true,
	"Trailer":             true,
	"Transfer-Encoding":   true,
	"Upgrade":             true,
	"Http2-Settings":      true,
}

const requestIDHeader = "X-Request-Id"

// copyHeader adds every end-to-end field of src to dst: not the hop-by-hop ones,
// not those that src's Connection field names. The values are shared.
func copyHeader(dst, src http.Header) {
	named := src["Connection"]
	for k, vv := range src {
		if hopByHop[k] || len(named) > 0 && namedIn(named, k) {
			continue
		}
		dst[k] = vv
	}
}

// unreadable are the fields of a request that ask for an answer which cannot be
// rewritten: encoded, or a part of one.
var unreadable = []string{"Accept-Encoding", "Range", "If-Range"}

// ofBytes are the fields that describe the very bytes of a body. They are wrong
// once it has been changed.
var ofBytes = []string{"Content-Md5", "Digest", "Content-Digest", "Repr-Digest"}

// ofAnswer are those of an answer's head besides: its length is known only at
// its end, its validator is of other bytes, and no part of it can be had.
var ofAnswer = []string{"Content-Length", "Etag", "Accept-Ranges"}

func dropFields(h http.Header, fields []string) {
	for _, f := range fields {
		delete(h, f)
	}
}

// namedIn tells whether a comma-separated list names a field.
func namedIn(lists []string, field string) bool {
	for _, list := range lists {
		for part := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(textproto.TrimString(part), field) {
				return true
			}
		}
	}
	return false
}

// requestHeader returns the header to send to a backend.
//
// The backend sees its own address as Host; the client's is in X-Forwarded-Host.
// X-Forwarded-For and Forwarded get one more element at their end; a
// X-Forwarded-Proto or -Host that came with the request stays, for it describes
// the outermost hop.
func requestHeader(r *http.Request, id string) http.Header {
	h := make(http.Header, len(r.Header)+7) // with Via
	copyHeader(h, r.Header)
	if namedIn(r.Header["Te"], "trailers") {
		h["Te"] = []string{"trailers"}
	}
	delete(h, "Expect") // answered here: the body is asked for when it is read
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // or the transport adds its own
	}
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		peer = r.RemoteAddr
	}
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	if peer != "" {
		appendList(h, "X-Forwarded-For", peer)
	}
	appendList(h, "Forwarded", forwarded(peer, r.Host, proto))
	if _, ok := h["X-Forwarded-Proto"]; !ok {
		h["X-Forwarded-Proto"] = []string{proto}
	}
	if _, ok := h["X-Forwarded-Host"]; !ok && r.Host != "" {
		h["X-Forwarded-Host"] = []string{r.Host}
	}
	h[requestIDHeader] = []string{id}
	return h
}

// appendList adds an element to a comma-separated field, as one line.
func appendList(h http.Header, field, element string) {
	if old := h[field]; len(old) > 0 {
		element = strings.Join(old, ", ") + ", " + element
	}
	h[field] = []string{element}
}

// forwarded renders one element of RFC 7239's field.
func forwarded(peer, host, proto string) string {
	var b strings.Builder
	b.Grow(len(peer) + len(host) + 32)
	b.WriteString("for=")
	switch {
	case peer == "":
		b.WriteString("unknown")
	case strings.Contains(peer, ":"):
		b.WriteString(`"[` + peer + `]"`)
	default:
		b.WriteString(peer)
	}
	if host != "" {
		b.WriteString(`;host="`)
		for i := 0; i < len(host); i++ { // the server admits no control characters
			if host[i] == '"' || host[i] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(host[i])
		}
		b.WriteByte('"')
	}
	b.WriteString(";proto=" + proto)
	return b.String()
}

// newRequestID returns 128 random bits in hex.
func newRequestID() string { return randomHex(32) }

// randomHex returns an even number of random digits.
func randomHex(digits int) string {
	raw := make([]byte, digits/2)
	_, _ = rand.Read(raw) // never fails: crypto/rand aborts the process instead
	return hex.EncodeToString(raw)
}
