package key

import (
	"math"
	"sync"
	"unicode/utf8"

	"github.com/minio/highwayhash"
)

// Options are the choices of an operator.
type Options struct {
	TokenArrays bool // key prompts given as token ids, in a domain of their own
	Disabled    bool // make no keys: of a body only its top-level members are read
}

// Hasher reads prompts. It is immutable and safe for concurrent use.
type Hasher struct {
	options Options
	fresh   *highwayhash.Digest64 // keyed, nothing written
	readers sync.Pool             // of *reader
}

// NewHasher returns a Hasher whose keys depend on secret: two agents agree on
// keys when they have the same one, and a client that does not know it cannot
// make two prompts collide.
func NewHasher(secret [32]byte, o Options) *Hasher {
	fresh, err := highwayhash.NewDigest64(secret[:])
	if err != nil {
		panic(err) // only for a key that is not 32 bytes long
	}
	h := &Hasher{options: o, fresh: fresh}
	h.readers.New = func() any { return new(reader) }
	return h
}

// Read reads a request body into *p, which it overwrites but for the storage
// of its Keys. It never fails: p.Reason says why there are no keys, and what
// was found up to there stands. p does not alias body.
//
// Model, Stream, Usage and MaxTokens are filled from the top-level members of any
// JSON object; the stored ids for APIResponses and for APIUnknown (the routes
// beside /v1/responses take the same members).
func (h *Hasher) Read(api API, body []byte, p *Prompt) {
	r := h.readers.Get().(*reader)
	r.read(h, api, body, p)
	r.release()
	h.readers.Put(r)
}

// reader is the state of one Read, pooled for its storage.
type reader struct {
	body   []byte
	api    API
	top    members
	ends   ends
	reason Reason // set by what returns false
	fresh  *highwayhash.Digest64
	chain  chain
	canon  canon
	digest highwayhash.Digest64 // of one media part or large value
	name   []byte               // scratch of object.next
	scrap  []byte               // scratch of str
	salt   []byte
	args   [canonicalLimit + 2*decodeRoom]byte // decoded tool call arguments
	stage  [1024]byte                          // decoded text on its way to the hash
}

// keepScratch is the largest scratch that stays in the pool.
const keepScratch = 64 << 10

func (r *reader) release() {
	r.body, r.chain.keys, r.fresh = nil, nil, nil
	for _, s := range [...]*[]byte{&r.name, &r.scrap, &r.salt} {
		if cap(*s) > keepScratch {
			*s = nil
		}
	}
	if cap(r.ends.list) > keepScratch {
		r.ends.list = nil
	}
}

func (r *reader) read(h *Hasher, api API, body []byte, p *Prompt) {
	r.body, r.api, r.reason, r.fresh = body, api, ReasonNone, h.fresh
	*p = Prompt{Keys: p.Keys[:0], Model: p.Model}
	r.top = members{}

	parsed := r.scan()
	model, modelOK := r.model()
	if p.Model != string(model) { // else keep the old one: no allocation
		p.Model = string(model)
	}
	stream := r.top[memberStream]
	p.Stream = string(body[stream.Start:stream.End]) == "true"
	p.Usage = r.usage()
	p.MaxTokens = r.maxTokens()
	idsOK := r.ids(p)
	switch {
	case api == APIUnknown:
		p.Reason = ReasonPath
		return
	case h.options.Disabled:
		p.Reason = ReasonDisabled
		return
	case !parsed || !utf8.Valid(body) || !modelOK || !idsOK:
		p.Reason = ReasonInvalid
		return
	case p.PreviousResponseID != Span{} || p.Conversation != Span{}:
		p.Reason = ReasonContinued
		return
	}
	salt, ok := r.cacheSalt()
	if !ok {
		p.Reason = ReasonInvalid
		return
	}
	r.chain.reset(h.fresh, p.Keys, model, salt)
	if !r.prompt(h.options) {
		p.Keys, p.Reason = r.chain.keys[:0], r.reason
		return
	}
	p.Keys, p.Bytes = r.chain.keys, r.chain.total
	if len(p.Keys) == 0 {
		p.Reason = ReasonShort
	}
}

// prompt writes the canonical prompt of a body that has been scanned.
func (r *reader) prompt(o Options) bool {
	switch r.api {
	case APIChat:
		return r.chat()
	case APICompletions:
		return r.completions(o.TokenArrays)
	case APIMessages:
		return r.messages()
	case APIResponses:
		return r.responses()
	}
	return r.fail(ReasonPath)
}

// scan records the top-level members of the body, the last of equal names. It
// reports whether the body is one JSON object; on false the members up to the
// fault are recorded.
func (r *reader) scan() bool {
	at := skipSpace(r.body, 0)
	if at >= len(r.body) || r.body[at] != '{' {
		return false
	}
	o := object{i: at + 1, ok: true, first: true}
	r.ends.reset()
	for o.next(r) {
		if m := memberOf(o.name); m != memberOther {
			r.top[m] = o.value
		}
	}
	return o.ok && skipSpace(r.body, o.i) == len(r.body)
}

// model returns the decoded model, valid until the next call of str: the prompt
// is written after its last use.
func (r *reader) model() ([]byte, bool) {
	s := r.top[memberModel]
	if r.null(s) {
		return nil, true
	}
	model, ok := r.str(s)
	if !ok || !utf8.Valid(model) {
		return nil, false
	}
	return model, true
}

// cacheSalt returns the decoded salt; an empty one is none, as in engines.
func (r *reader) cacheSalt() ([]byte, bool) {
	s := r.top[memberCacheSalt]
	if r.null(s) {
		return nil, true
	}
	return r.unescape(&r.salt, s)
}

// maxTokens returns the first limit that is given: a whole number from 0, cut
// at MaxInt32. Anything else counts as not given.
func (r *reader) maxTokens() int {
	for _, m := range [...]member{memberMaxCompletionTokens, memberMaxOutputTokens, memberMaxTokens} {
		s := r.top[m]
		if r.null(s) {
			continue
		}
		n, ok := r.whole(s, math.MaxInt32)
		if !ok {
			return 0
		}
		return int(n)
	}
	return 0
}

// usage tells whether a streamed answer has its usage in one event: the Messages API
// always, the older two where the client asks for it, and not in every event.
func (r *reader) usage() bool {
	if r.api == APIMessages {
		return true
	}
	s := r.top[memberStreamOptions]
	if r.api == APIResponses || r.kind(s) != '{' {
		return false
	}
	include, always := false, false
	o := r.object(s.Start)
	for o.next(r) {
		yes := string(r.body[o.value.Start:o.value.End]) == "true"
		switch string(o.name) {
		case "include_usage":
			include = yes
		case "continuous_usage_stats":
			always = yes
		}
	}
	return o.ok && include && !always
}

// ids fills the stored ids of p. False: one of them has a wrong type.
func (r *reader) ids(p *Prompt) bool {
	if r.api != APIResponses && r.api != APIUnknown {
		return true
	}
	ok := r.id(memberPreviousResponseID, &p.PreviousResponseID)
	ok = r.id(memberRequestID, &p.RequestID) && ok
	s := r.top[memberConversation]
	if r.kind(s) != '{' {
		return r.id(memberConversation, &p.Conversation) && ok
	}
	var id Span
	o := r.object(s.Start)
	for o.next(r) {
		if string(o.name) == "id" {
			id = o.value
		}
	}
	if !o.ok || r.kind(id) != '"' {
		return false
	}
	p.Conversation = id
	return ok
}

func (r *reader) id(m member, to *Span) bool {
	s := r.top[m]
	if r.null(s) {
		return true
	}
	if r.kind(s) != '"' {
		return false
	}
	*to = s
	return true
}
