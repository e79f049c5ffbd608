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
// an ordinary chat request, which every router passes on.
type Spec struct {
	Stream uint32        // watermark of this response; unique in a run
	Tokens int           // events with a token; 0 asks for a plain JSON answer, at once
	Bytes  int           // size of one token's event; at least MinBytes
	Every  time.Duration // between two tokens; the first comes at once
	Hold   int           // send nothing after this many tokens until the server is told to stop; 0 = never
	Spread bool          // each stream has its own phase; else all send on the same tick, as one engine step does
}

const specFormat = "bench stream=%d tokens=%d bytes=%d every=%d hold=%d spread=%t"

// Body is a chat request that asks for s and is at least size bytes long.
func (s Spec) Body(size int) []byte {
	user := fmt.Sprintf(specFormat, s.Stream, s.Tokens, s.Bytes, int64(s.Every), s.Hold, s.Spread)
	head := fmt.Sprintf(`{"model":"bench","user":"%s","stream":%t,"max_tokens":%d,"messages":[{"role":"user","content":"Stream %d. `,
		user, s.Tokens > 0, max(s.Tokens, 1), s.Stream)
	const tail = `"}]}`
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

// The parts of an event: head, watermark, middle, then by its place in the
// response the role (number 0), a token with its filler, or the finish.
const (
	eventHead   = `data: {"id":"chatcmpl-`
	eventMiddle = `","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":[{"index":0,"delta":`
	roleTail    = `{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + eventEnd
	tokenOpen   = `{"content":"`
	tokenTail   = `"},"logprobs":null,"finish_reason":null}]}` + eventEnd
	finishTail  = `{},"logprobs":null,"finish_reason":"length"}]}` + eventEnd
	eventEnd    = "\n\n"
	doneEvent   = "data: [DONE]\n\n"

	markLen = 8 + 1 + 8 + 1 + 16 // stream-number-time, in hex
)

// MinBytes is the size of the smallest token event.
const MinBytes = len(eventHead) + markLen + len(eventMiddle) + len(tokenOpen) + 1 + len(tokenTail)

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

// parseMark reads the watermark of an event; false when it has none.
func parseMark(event []byte) (mark, bool) {
	if len(event) < len(eventHead)+markLen || string(event[:len(eventHead)]) != eventHead {
		return mark{}, false
	}
	w := event[len(eventHead):][:markLen]
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

// appendEvent appends the role (number 0) or a token; size is a token's.
func appendEvent(dst []byte, m mark, size int) []byte {
	dst = append(dst, eventHead...)
	dst = m.append(dst)
	dst = append(dst, eventMiddle...)
	if m.seq == 0 {
		return append(dst, roleTail...)
	}
	dst = append(dst, tokenOpen...)
	letter := 'a' + byte((m.stream*7+m.seq)%26)
	for range size - MinBytes + 1 {
		dst = append(dst, letter)
	}
	return append(dst, tokenTail...)
}

// appendFinish appends the event after the last token, numbered as if it were one.
func appendFinish(dst []byte, m mark) []byte {
	dst = append(dst, eventHead...)
	dst = m.append(dst)
	dst = append(dst, eventMiddle...)
	return append(dst, finishTail...)
}

// DoneWireBytes is what the end marker takes as one HTTP chunk. A Checker does
// not report it as a Chunk: it carries no watermark.
const DoneWireBytes = 1 + 2 + len(doneEvent) + 2

// wireBytes is the size of n body bytes as one HTTP chunk.
func wireBytes(n int) int {
	digits := 1
	for v := n; v > 15; v >>= 4 {
		digits++
	}
	return digits + 2 + n + 2
}
