package pin

import (
	"path"
	"strings"
)

// Endpoint is what a request path is about.
type Endpoint uint8

// The endpoints that make or name stored state. Methods do not matter here.
const (
	EndpointOther              Endpoint = iota // no stored state: not ours
	EndpointResponses                          // /v1/responses
	EndpointCompact                            // /v1/responses/compact
	EndpointInputTokens                        // /v1/responses/input_tokens
	EndpointResponse                           // /v1/responses/{id}
	EndpointResponseCancel                     // /v1/responses/{id}/cancel
	EndpointResponseInputItems                 // /v1/responses/{id}/input_items
	EndpointResponseBelow                      // anything else below /v1/responses/{id}
	EndpointConversations                      // /v1/conversations
	EndpointConversation                       // /v1/conversations/{id}
	EndpointItems                              // /v1/conversations/{id}/items
	EndpointItem                               // /v1/conversations/{id}/items/{item}
	EndpointConversationBelow                  // anything else below /v1/conversations/{id}
	EndpointOdd                                // would be one of these once "//", "." or ".." are cleaned away
)

// NamesBody says whether a body sent there may name stored ids: read it with
// ReadBody.
func (e Endpoint) NamesBody() bool {
	return e == EndpointResponses || e == EndpointCompact || e == EndpointInputTokens
}

// Path is a parsed request path.
type Path struct {
	Endpoint Endpoint
	// ID is the stored id, percent-decoded; meaningful when Named.
	ID    string
	raw   string
	start int // where the id starts in raw
}

// Named says whether the path has the place of a stored id, so that anything
// but a good tag there must be refused. It holds for EndpointOdd too: engines
// differ in how they read such a path.
func (p Path) Named() bool {
	switch p.Endpoint {
	case EndpointOther, EndpointResponses, EndpointConversations, EndpointCompact, EndpointInputTokens:
		return false
	}
	return true
}

// ParsePath reads a request's path as the client escaped it, with or without
// its query: origin form, as url.URL.RequestURI gives it. The whole path is percent-decoded before it is split, as engines
// do (ASGI servers route on the decoded path), so neither "%2F" nor an escaped
// "responses" hides an id. A broken escape stands for itself. One trailing "/"
// does not matter. It allocates only when there is something to decode.
func ParsePath(raw string) Path {
	p := Path{raw: raw}
	esc := raw
	if q := strings.IndexByte(esc, '?'); q >= 0 {
		esc = esc[:q]
	}
	dec := unescape(esc)
	rest, ok := strings.CutPrefix(dec, "/v1/")
	if ok {
		p.Endpoint, p.ID = split(rest)
	}
	if p.Endpoint != EndpointOther {
		if clean := path.Clean(dec); clean != strings.TrimSuffix(dec, "/") {
			return Path{Endpoint: EndpointOdd, raw: raw}
		}
		if p.ID != "" {
			p.start = rawIndex(esc, len("/v1/")+strings.IndexByte(rest, '/')+1)
		}
		return p
	}
	if strings.Contains(dec, "//") || strings.Contains(dec, "/.") {
		if r, ok := strings.CutPrefix(path.Clean(dec), "/v1/"); ok {
			if e, _ := split(r); e != EndpointOther {
				return Path{Endpoint: EndpointOdd, raw: raw}
			}
		}
	}
	return p
}

// Strip returns the path and query as they came, less the id's tag. Without a
// tag of the site it returns them unchanged.
func (p Path) Strip(site string) string {
	tag, ok := Parse(p.ID)
	if !ok || tag.Site != site {
		return p.raw
	}
	from := p.start + rawIndex(p.raw[p.start:], prefixLen)
	to := p.start + rawIndex(p.raw[p.start:], prefixLen+tag.stamp())
	return p.raw[:from] + p.raw[to:]
}

// split reads what follows "/v1/".
func split(rest string) (Endpoint, string) {
	kind, rest, _ := strings.Cut(rest, "/")
	if kind != "responses" && kind != "conversations" {
		return EndpointOther, ""
	}
	id, below, _ := strings.Cut(rest, "/")
	below = strings.TrimSuffix(below, "/")
	if kind == "responses" {
		switch {
		case rest == "":
			return EndpointResponses, ""
		case id == "compact" && below == "":
			return EndpointCompact, ""
		case id == "input_tokens" && below == "":
			return EndpointInputTokens, ""
		case below == "":
			return EndpointResponse, id
		case below == "cancel":
			return EndpointResponseCancel, id
		case below == "input_items":
			return EndpointResponseInputItems, id
		}
		return EndpointResponseBelow, id
	}
	item, isItem := strings.CutPrefix(below, "items/")
	switch {
	case rest == "":
		return EndpointConversations, ""
	case below == "":
		return EndpointConversation, id
	case below == "items":
		return EndpointItems, id
	case isItem && !strings.Contains(item, "/"):
		return EndpointItem, id
	}
	return EndpointConversationBelow, id
}

// unescape percent-decodes s, leaving broken escapes as they are.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		c, n := pathUnit(s[i:])
		b = append(b, c)
		i += n
	}
	return string(b)
}

// rawIndex is the offset in the escaped s of its n-th decoded byte.
func rawIndex(s string, n int) int {
	i := 0
	for ; n > 0; n-- {
		_, w := pathUnit(s[i:])
		i += w
	}
	return i
}

// pathUnit decodes the first byte of s, which must not be empty.
func pathUnit(s string) (c byte, width int) {
	if s[0] == '%' && len(s) > 2 {
		hi, lo := hexVal(s[1]), hexVal(s[2])
		if hi < 16 && lo < 16 {
			return hi<<4 | lo, 3
		}
	}
	return s[0], 1
}

// hexVal is the value of a hex digit, 16 for anything else.
func hexVal(c byte) byte {
	switch {
	case isDigit(c):
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}
