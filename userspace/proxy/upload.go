package proxy

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// timedBody reads a client's body with a limit on its patience: on the wait for
// the next bytes, and on the time for all of them.
type timedBody struct {
	x     *exchange
	src   io.Reader
	n     int64
	spent time.Duration // in reads: a backend that does not take the body is not the client's fault
	until atomic.Int64  // deadline of the current read in Unix nanoseconds; 0 = none

	mu   sync.Mutex // held while the connection's deadline is set
	over bool       // the handler has returned: the connection is another request's
}

// errOver is what a reader gets that outlives its request.
var errOver = errors.New("the request is over")

// deadline sets the connection's, as long as the request has it.
func (b *timedBody) deadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return errOver
	}
	_ = b.x.rc.SetReadDeadline(t) // not supported only outside a server
	return nil
}

// end takes the connection away from a transport that still reads.
func (b *timedBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

func (b *timedBody) Read(p []byte) (int, error) {
	wait := b.x.params.Timeouts.Body
	now := time.Now()
	next := now.Add(min(wait, wait+time.Duration(b.n/bodyRate)*time.Second-b.spent))
	b.until.Store(next.UnixNano())
	b.x.asked.Store(true)
	if err := b.deadline(next); err != nil {
		return 0, err
	}
	n, err := b.src.Read(p)
	b.n += int64(n)
	b.spent += time.Since(now)
	if err == nil {
		b.until.Store(0) // nobody waits for the client until the next read
	}
	return n, err
}

// done takes the limit away again: what the server reads next is the client's
// going away.
func (b *timedBody) done() {
	b.until.Store(0)
	_ = b.deadline(time.Time{})
}

// late tells whether the patience has run out. A read that fails for that reason
// cancels the request's context, as if the client had gone.
func (b *timedBody) late() bool {
	until := b.until.Load()
	return until > 0 && time.Now().UnixNano() >= until
}

// streamedBody passes a client's body on as it comes. It remembers whether a
// transport has begun to read it, whether it was read to its end, and why reading
// failed.
type streamedBody struct {
	src     *timedBody
	left    int64
	touched atomic.Bool
	ended   atomic.Bool
	failed  atomic.Pointer[error]
}

func (b *streamedBody) Read(p []byte) (int, error) {
	b.touched.Store(true)
	if b.left < int64(len(p)) {
		p = p[:b.left+1] // one more, to see that there is one
	}
	n, err := b.src.Read(p)
	if b.left -= int64(n); b.left < 0 {
		err = errTooLarge
	}
	switch {
	case errors.Is(err, io.EOF):
		b.src.done()
		b.ended.Store(true)
	case err != nil:
		b.failed.Store(&err)
	}
	return n, err
}

// Close does nothing: the server closes the body.
func (b *streamedBody) Close() error { return nil }
