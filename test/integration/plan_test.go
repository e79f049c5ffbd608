package integration

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// departure is how a client leaves its stream.
type departure uint8

const (
	stays      departure = iota // reads to the end
	closes                      // in the middle, by close
	resets                      // in the middle, with a reset
	halfCloses                  // in the middle, its sending side only: net/http takes that for leaving
	early                       // after the head, before a token has come
	earlier                     // before the head has come
	departures
)

func (d departure) String() string {
	return [...]string{"stays", "closes", "resets", "half-closes", "before the first token", "before the head"}[d]
}

// A plan is what both ends of a stream know beforehand: everything about it
// follows from its seed.
type plan struct {
	seed    uint64
	how     departure
	slow    bool   // the client pauses between reads
	usage   string // what asks for the event that tells the usage, if it comes
	after   int    // bytes after which the client leaves
	events  []int  // where each event of body ends
	body    []byte // every event with its watermark, then the end marker
	prefill time.Duration
}

const doneEvent = "data: [DONE]\n\n"

func newPlan(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &plan{seed: seed, slow: r.IntN(10) == 0}
	if r.IntN(4) == 0 {
		p.how = closes + departure(r.IntN(int(departures-closes)))
	}
	if r.IntN(3) == 0 {
		p.prefill = time.Duration(r.IntN(30_000)) * time.Microsecond
	}
	for n := range 2 + r.IntN(60) {
		size := 20 + r.IntN(400)
		switch r.IntN(40) {
		case 0:
			size = r.IntN(60_000) // some are larger than what the kernel takes in one piece
		case 1:
			size = 0
		}
		p.body = fmt.Appendf(p.body, `data: {"stream":"%x","n":%d,"text":"`, seed, n)
		for range size {
			p.body = append(p.body, 'a'+byte(r.Uint32()%26))
		}
		p.body = append(p.body, "\"}\n\n"...)
		p.events = append(p.events, len(p.body))
	}
	if r.IntN(2) == 0 {
		p.usage = askUsage
		p.body = fmt.Appendf(p.body, `data: {"stream":"%x","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`+"\n\n", seed, 1+r.IntN(9), len(p.events))
		p.events = append(p.events, len(p.body))
	}
	if r.IntN(8) == 0 { // a comment before the first token
		comment := fmt.Sprintf(": %x\n\n", seed)
		p.body = append([]byte(comment), p.body...)
		for i := range p.events {
			p.events[i] += len(comment)
		}
		p.events = append([]int{len(comment)}, p.events...)
	}
	p.body = append(p.body, doneEvent...)
	p.events = append(p.events, len(p.body))
	p.after = 1 + r.IntN(len(p.body)-1)
	return p
}

const askFormat = `{"model":"soak","stream":true,%s"user":"soak %d.","messages":[{"role":"user","content":"tell"}]}`

// ask is the request for the stream.
func (p *plan) ask(addr string) []byte {
	body := fmt.Sprintf(askFormat, p.usage, p.seed)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		addr, len(body), body)
}
