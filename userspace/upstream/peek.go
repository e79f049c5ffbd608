package upstream

import (
	"bufio"
	"bytes"
	"io"
	"net/http/httputil"
	"time"
)

// Peek shows the beginning of the body and takes nothing of it. It waits for as long as
// more asks for more of what it has been shown, but no longer than d in all, nor for
// more than bufferBytes with their framing. more is asked at least once, of nothing
// perhaps, and must not keep what it is shown. Whatever ends the connection meanwhile
// is for Read to tell. Call it before the first Read.
func (b *body) Peek(d time.Duration, more func(begin []byte) bool) {
	if b.done != nil {
		return
	}
	c, waiting := b.x.c, false
	for more(b.begin()) {
		if !waiting {
			if c.SetReadDeadline(time.Now().Add(d)) != nil {
				return
			}
			waiting = true
		}
		if _, err := c.br.Peek(c.br.Buffered() + 1); err != nil {
			break
		}
	}
	if waiting {
		_ = c.SetReadDeadline(time.Time{}) // fails where Read will
	}
}

// begin returns what is here of the body, without its framing.
func (b *body) begin() []byte {
	raw, _ := b.x.c.br.Peek(b.x.c.br.Buffered())
	if !b.chunked || len(raw) == 0 {
		return raw
	}
	br := readers.Get().(*bufio.Reader)
	br.Reset(bytes.NewReader(raw))
	plain := make([]byte, len(raw))
	n, _ := io.ReadFull(httputil.NewChunkedReader(br), plain) // its end is that of raw
	br.Reset(nil)
	readers.Put(br)
	return plain[:n]
}
