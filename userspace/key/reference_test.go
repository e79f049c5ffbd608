package key

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/minio/highwayhash"
)

// The reference reads a body the slow way: encoding/json into maps of raw
// values (the last of equal names wins there), the canonical prompt built as
// one byte slice, every key hashed from the first byte on.

type refObject map[string]json.RawMessage

type refStop struct{ reason Reason }

func stop(why Reason) { panic(refStop{why}) }

type reference struct {
	secret [32]byte
	api    API
	out    []byte
}

// refRead is Hasher.Read for a body that json.Valid accepts. Spans are left
// zero: only whether they are there counts, see refIDs.
func refRead(secret [32]byte, o Options, api API, body []byte) (p Prompt) {
	var top refObject
	if err := json.Unmarshal(body, &top); err != nil || top == nil || refDepth(body) > 512 || !utf8.Valid(body) {
		p.Reason = ReasonInvalid
		if api == APIUnknown {
			p.Reason = ReasonPath
		}
		return p
	}
	modelOK := refNull(top["model"]) || top["model"][0] == '"'
	if modelOK {
		p.Model = refString(top["model"])
	}
	p.Stream = string(top["stream"]) == "true"
	switch api {
	case APIMessages:
		p.Usage = true
	case APIResponses:
	default:
		var options refObject
		if json.Unmarshal(top["stream_options"], &options) == nil {
			p.Usage = string(options["include_usage"]) == "true" && string(options["continuous_usage_stats"]) != "true"
		}
	}
	for _, name := range []string{"max_tokens", "max_output_tokens", "max_completion_tokens"} {
		if refNull(top[name]) {
			continue
		}
		p.MaxTokens = 0
		if strings.Trim(string(top[name]), "0123456789") == "" {
			n, err := strconv.ParseUint(string(top[name]), 10, 31)
			if err != nil {
				n = math.MaxInt32
			}
			p.MaxTokens = int(n)
		}
	}
	if api == APIUnknown {
		p.Reason = ReasonPath
		return p
	}
	if !modelOK {
		p.Reason = ReasonInvalid
		return p
	}
	r := &reference{secret: secret, api: api}
	defer func() {
		if s, ok := recover().(refStop); ok {
			p.Keys, p.Bytes, p.Reason = nil, 0, s.reason
		}
	}()
	if api == APIResponses {
		refIDs(top)
	}
	salt := ""
	if !refNull(top["cache_salt"]) {
		salt = refText(top["cache_salt"])
	}
	switch api {
	case APIChat:
		r.chat(top)
	case APICompletions:
		r.completions(top, o.TokenArrays)
	case APIMessages:
		r.messages(top)
	case APIResponses:
		r.responses(top)
	}
	p.Bytes = len(r.out)
	p.Keys = refKeys(secret, p.Model, salt, r.out)
	if len(p.Keys) == 0 {
		p.Reason = ReasonShort
	}
	return p
}

func refKeys(secret [32]byte, model, salt string, canonical []byte) (keys []Key) {
	header := []byte("tautline/key/1\x00\x00")
	header = binary.LittleEndian.AppendUint64(header, uint64(len(model)))
	header = append(header, model...)
	header = binary.LittleEndian.AppendUint64(header, uint64(len(salt)))
	header = append(header, salt...)
	for len(header)%32 != 0 {
		header = append(header, 0)
	}
	all := append(header, canonical...)
	block := 0
	for n := 0; n < 512; n++ {
		stride := 1
		if n >= 448 {
			stride = []int{2, 4, 8, 16, 32, 64, 128, 256}[(n-448)/8]
		}
		block += stride
		if block*256 > len(canonical) {
			break
		}
		keys = append(keys, Key(highwayhash.Sum64(all[:len(header)+block*256], secret[:])))
	}
	return keys
}

func refIDs(top refObject) {
	continued := false
	for _, name := range []string{"previous_response_id", "request_id", "conversation"} {
		v := top[name]
		if refNull(v) {
			continue
		}
		if name == "conversation" && v[0] == '{' {
			v = refMap(v)["id"]
			if refNull(v) {
				stop(ReasonInvalid)
			}
		}
		if v[0] != '"' {
			stop(ReasonInvalid)
		}
		continued = continued || name != "request_id"
	}
	if continued {
		stop(ReasonContinued)
	}
}

func refNull(v json.RawMessage) bool { return len(v) == 0 || v[0] == 'n' }

func refString(v json.RawMessage) (s string) {
	if !refNull(v) {
		if err := json.Unmarshal(v, &s); err != nil {
			panic(err)
		}
	}
	return s
}

// refText is refString for what must be a string.
func refText(v json.RawMessage) string {
	if refNull(v) || v[0] != '"' {
		stop(ReasonInvalid)
	}
	return refString(v)
}

func refMap(v json.RawMessage) (m refObject) {
	if refNull(v) || v[0] != '{' {
		stop(ReasonInvalid)
	}
	if err := json.Unmarshal(v, &m); err != nil {
		panic(err)
	}
	return m
}

func refList(v json.RawMessage) (l []json.RawMessage) {
	if refNull(v) || v[0] != '[' {
		stop(ReasonInvalid)
	}
	if err := json.Unmarshal(v, &l); err != nil {
		panic(err)
	}
	return l
}

func refEmpty(v json.RawMessage) bool { return !refNull(v) && v[0] == '[' && len(refList(v)) == 0 }

func refDepth(body []byte) (deepest int) {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

func (r *reference) field(tag byte, content string) {
	r.out = append(append(r.out, 0xFF, tag), content...)
}

func (r *reference) text(tag byte, v json.RawMessage) { r.field(tag, refText(v)) }

func (r *reference) textIf(tag byte, v json.RawMessage) {
	if !refNull(v) {
		r.text(tag, v)
	}
}

func (r *reference) sum(b string) string {
	return string(binary.LittleEndian.AppendUint64(nil, highwayhash.Sum64([]byte(b), r.secret[:])))
}

func (r *reference) json(tag byte, v json.RawMessage) {
	if v = bytes.TrimSpace(v); len(v) > 16384 {
		r.field(tag, "\xFD"+r.sum(string(v)))
		return
	}
	r.field(tag, refCanon(v, r.api == APIMessages && tag != 'a'))
}

func (r *reference) jsonIf(tag byte, v json.RawMessage) {
	if !refNull(v) {
		r.json(tag, v)
	}
}

func refCanon(v json.RawMessage, strip bool) string {
	v = bytes.TrimSpace(v)
	switch v[0] {
	case '"':
		return "\xFE" + refString(v) + "\xFE"
	case '[':
		var parts []string
		for _, e := range refList(v) {
			parts = append(parts, refCanon(e, strip))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case '{':
		m := refMap(v)
		var names, parts []string
		for name := range m {
			if strip && name == "cache_control" && refMarker(m[name]) {
				continue
			}
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			parts = append(parts, "\xFE"+name+"\xFE:"+refCanon(m[name], strip))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return string(v)
}

func refMarker(v json.RawMessage) bool {
	if v[0] != '{' {
		return v[0] == 'n'
	}
	kind := refMap(v)["type"]
	return !refNull(kind) && kind[0] == '"' && refString(kind) == "ephemeral"
}

func (r *reference) media(tag byte, uuid json.RawMessage, values ...json.RawMessage) {
	if !refNull(uuid) {
		if id := refText(uuid); id != "" {
			r.field(tag, "u"+r.sum(id))
			return
		}
	}
	for _, v := range values {
		if refNull(v) {
			continue
		}
		if v[0] == '"' {
			r.field(tag, "s"+r.sum(refString(v)))
		} else {
			r.field(tag, "v"+r.sum(string(bytes.TrimSpace(v))))
		}
		return
	}
	stop(ReasonInvalid)
}

type refHead struct {
	name, def string
	tag       byte
}

func (r *reference) head(top refObject, fields []refHead) {
	for _, f := range fields {
		v := top[f.name]
		switch {
		case refNull(v):
		case v[0] != '"' && string(v) == f.def:
		case v[0] == '"' && f.def == "auto" && refString(v) == "auto":
		case f.tag == 'T':
			r.text('T', v)
		default:
			r.json(f.tag, v)
		}
	}
}

func (r *reference) effort(v json.RawMessage) {
	if !refNull(v) {
		r.jsonIf('e', refMap(v)["effort"])
	}
}

func (r *reference) contents(v json.RawMessage, part func(json.RawMessage)) {
	switch {
	case refNull(v):
	case v[0] == '[':
		for _, e := range refList(v) {
			part(e)
		}
	default:
		r.text('x', v)
	}
}
