// Package stream measures a token stream's way from a server's write to a
// client's read. Its server sends paced server-sent events as a model server
// does, one HTTP chunk a write; every event carries a watermark (stream, number,
// time of the write), and its checker proves that a client got exactly the bytes
// that were meant for it, in order.
package stream

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Spec is what a client asks the server for. It travels in the "user" member of
// an ordinary request, which every router passes on.
type Spec struct {
	Stream uint32        // watermark of this response; unique in a run
	Tokens int           // events with a token; 0 asks for a plain JSON answer, at once
	Bytes  int           // size of one token's event; at least MinBytes
	Every  time.Duration // between two tokens; the first comes at once
	Hold   int           // send nothing after this many tokens until the server is told to stop; 0 = never
	Spread bool          // each stream has its own phase; else all send on the same tick, as one engine step does

	Responses bool // asks for it in the Responses API, not as a chat; in the path, not in the body
}

// Path is where a request for s goes.
func (s Spec) Path() string {
	if s.Responses {
		return "/v1/responses"
	}
	return "/v1/chat/completions"
}

const specFormat = "bench stream=%d tokens=%d bytes=%d every=%d hold=%d spread=%t"

// Body is a request that asks for s and is at least size bytes long.
func (s Spec) Body(size int) []byte {
	user := fmt.Sprintf(specFormat, s.Stream, s.Tokens, s.Bytes, int64(s.Every), s.Hold, s.Spread)
	form, tail := `{"model":"bench","user":"%s","stream":%t,"max_tokens":%d,"messages":[{"role":"user","content":"Stream %d. `, `"}]}`
	if s.Responses {
		form, tail = `{"model":"bench","user":"%s","stream":%t,"max_output_tokens":%d,"input":"Stream %d. `, `"}`
	}
	head := fmt.Sprintf(form, user, s.Tokens > 0, max(s.Tokens, 1), s.Stream)
	const filler = "All work and no play makes for a long prompt. "
	n := max(0, size-len(head)-len(tail))
	text := strings.Repeat(filler, n/len(filler)+1)
	return []byte(head + text[:n] + tail)
}

// ParseSpec finds the Spec in a request's body; false when there is none.
func ParseSpec(body []byte) (Spec, bool) {
	var s Spec
	i := bytes.Index(body, []byte("bench stream="))
	if i < 0 {
		return s, false
	}
	text := body[i:]
	if j := bytes.IndexByte(text, '"'); j >= 0 {
		text = text[:j]
	}
	var every int64
	if _, err := fmt.Sscanf(string(text), specFormat, &s.Stream, &s.Tokens, &s.Bytes, &every, &s.Hold, &s.Spread); err != nil {
		return s, false
	}
	s.Every = time.Duration(every)
	return s, s.Tokens >= 0 && s.Bytes >= MinBytes && s.Every > 0
}

// A dialect is how an API words its events: a name, head, watermark, middle, then
// by its place in the response the role (number 0), a token with its filler, or the
// finish.
type dialect struct {
	roleName, tokenName, finishName string // lines before the data, or nothing
	head, middle                    string
	role, open, tail, finish        string
	done                            string // what comes last, without a watermark
}

const eventEnd = "\n\n"

var chat = dialect{
	head:   `data: {"id":"chatcmpl-`,
	middle: `","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":[{"index":0,"delta":`,
	role:   `{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + eventEnd,
	open:   `{"content":"`,
	tail:   `"},"logprobs":null,"finish_reason":null}]}` + eventEnd,
	finish: `{},"logprobs":null,"finish_reason":"length"}]}` + eventEnd,
	done:   "data: [DONE]" + eventEnd,
}

// The responses have an id that no router marks, so that every path can be held to
// the same bytes.
var responses = dialect{
	roleName:   "event: response.created\n",
	tokenName:  "event: response.output_text.delta\n",
	finishName: "event: response.completed\n",
	head:       `data: {"item_id":"`,
	middle:     `","output_index":0,`,
	role:       `"type":"response.created","response":{"object":"response","id":"bench","status":"in_progress"}}` + eventEnd,
	open:       `"type":"response.output_text.delta","content_index":0,"delta":"`,
	tail:       `"}` + eventEnd,
	finish:     `"type":"response.completed","response":{"object":"response","id":"bench","status":"completed"}}` + eventEnd,
}

func (s Spec) dialect() *dialect {
	if s.Responses {
		return &responses
	}
	return &chat
}

const markLen = 8 + 1 + 8 + 1 + 16 // stream-number-time, in hex

// minBytes is the size of the smallest token event.
func (d *dialect) minBytes() int {
	return len(d.tokenName) + len(d.head) + markLen + len(d.middle) + len(d.open) + 1 + len(d.tail)
}

// maxTail bounds what an event has beyond its token's filler.
func (d *dialect) maxTail() int { return len(d.roleName) + len(d.role) + len(d.finish) }

// MinBytes is the size of the smallest token event of any API.
var MinBytes = max(chat.minBytes(), responses.minBytes())

// mark is the watermark of an event.
type mark struct {
	stream, seq uint32
	stamp       int64 // CLOCK_MONOTONIC in nanoseconds at the write
}

func (m mark) append(dst []byte) []byte {
	dst = appendHex(dst, uint64(m.stream), 8)
	dst = append(dst, '-')
	dst = appendHex(dst, uint64(m.seq), 8)
	dst = append(dst, '-')
	return appendHex(dst, uint64(m.stamp), 16)
}

func appendHex(dst []byte, v uint64, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, "0123456789abcdef"[v>>(4*i)&15])
	}
	return dst
}

// mark reads the watermark of an event; false when it has none.
func (d *dialect) mark(event []byte) (mark, bool) {
	if d.tokenName != "" {
		_, event, _ = bytes.Cut(event, []byte("\n"))
	}
	if len(event) < len(d.head)+markLen || string(event[:len(d.head)]) != d.head {
		return mark{}, false
	}
	w := event[len(d.head):][:markLen]
	if w[8] != '-' || w[17] != '-' {
		return mark{}, false
	}
	var b [16]byte
	for _, part := range [][2][]byte{{b[0:4], w[0:8]}, {b[4:8], w[9:17]}, {b[8:16], w[18:34]}} {
		if _, err := hex.Decode(part[0], part[1]); err != nil {
			return mark{}, false
		}
	}
	return mark{
		stream: uint32(bigEndian(b[0:4])),
		seq:    uint32(bigEndian(b[4:8])),
		stamp:  int64(bigEndian(b[8:16])),
	}, true
}

func bigEndian(b []byte) (v uint64) {
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}

// event appends the role (number 0) or a token; size is a token's.
func (d *dialect) event(dst []byte, m mark, size int) []byte {
	name := d.tokenName
	if m.seq == 0 {
		name = d.roleName
	}
	dst = append(dst, name...)
	dst = append(dst, d.head...)
	dst = m.append(dst)
	dst = append(dst, d.middle...)
	if m.seq == 0 {
		return append(dst, d.role...)
	}
	dst = append(dst, d.open...)
	letter := 'a' + byte((m.stream*7+m.seq)%26)
	for range size - d.minBytes() + 1 {
		dst = append(dst, letter)
	}
	return append(dst, d.tail...)
}

// end appends the event after the last token, numbered as if it were one.
func (d *dialect) end(dst []byte, m mark) []byte {
	dst = append(dst, d.finishName...)
	dst = append(dst, d.head...)
	dst = m.append(dst)
	dst = append(dst, d.middle...)
	return append(dst, d.finish...)
}

// DoneWireBytes is what the end marker takes as one HTTP chunk, 0 where the API has
// none. A Checker does not report it as a Chunk: it carries no watermark.
func (s Spec) DoneWireBytes() int {
	if n := len(s.dialect().done); n > 0 {
		return wireBytes(n)
	}
	return 0
}

// wireBytes is the size of n body bytes as one HTTP chunk.
func wireBytes(n int) int {
	digits := 1
	for v := n; v > 15; v >>= 4 {
		digits++
	}
	return digits + 2 + n + 2
}
