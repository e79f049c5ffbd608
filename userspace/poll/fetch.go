package poll

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"
)

// lineBytes is the longest line that is read as one; the needed ones have a
// thirtieth of it. Longer lines are skipped. Most pages fit in one read.
const lineBytes = 64 << 10

// modelsBytes bounds a list of models.
const modelsBytes = 1 << 20

var errTooLarge = errors.New("body too large")

// buffers lends the buffers that pages are read through. They are shared by
// all backends: one that was just used is in the CPU's cache, a hundred of
// their own would not be.
type buffers struct {
	mu   sync.Mutex
	free [][]byte // the last is the warmest
}

// spareBuffers is how many are kept for later.
const spareBuffers = 8

func (b *buffers) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.free)
	if n == 0 {
		return make([]byte, lineBytes)
	}
	x := b.free[n-1]
	b.free = b.free[:n-1]
	return x
}

func (b *buffers) give(x []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free) < spareBuffers {
		b.free = append(b.free, x)
	}
}

// fetcher asks one backend. Not safe for concurrent use.
type fetcher struct {
	*link
	buffers *buffers
}

func newFetcher(base *url.URL, config *tls.Config, b *buffers) *fetcher {
	return &fetcher{link: newLink(base, config), buffers: b}
}

// get sends a request and hands the answer's body to read, bounded in time
// and size. read ends without an error only at the body's end.
func (f *fetcher) get(ctx context.Context, p *Params, request []byte, read func(io.Reader) error) *failure {
	answer, err := f.do(ctx, request, time.Now().Add(p.Timeout), p.MaxBody)
	if err != nil {
		return broken(ReasonConnect, err)
	}
	code := answer.StatusCode
	if code < 200 || code >= 300 {
		// Keep the connection when the error's text is short.
		_, err := io.CopyN(io.Discard, answer.Body, lineBytes)
		f.finish(answer, errors.Is(err, io.EOF))
		if code >= 300 && code < 400 {
			return &failure{reason: ReasonRedirect, status: code, err: fmt.Errorf("redirect to %q not followed", answer.Header.Get("Location"))}
		}
		return &failure{reason: ReasonStatus, status: code, err: fmt.Errorf("status %d", code)}
	}
	body := io.LimitedReader{R: answer.Body, N: p.MaxBody + 1}
	err = read(&body)
	whole := body.N > 0 && err == nil
	tooLarge := body.N <= 0 || f.left.N <= 0 || errors.Is(err, errTooLarge)
	f.finish(answer, whole)
	switch {
	case whole:
		return nil
	case tooLarge:
		return &failure{reason: ReasonTooLarge, err: errTooLarge}
	}
	return broken(ReasonBroken, err)
}

// broken sorts the errors of connection and body; reason is what is not special.
func broken(reason Reason, err error) *failure {
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		reason = ReasonTimeout
	}
	return &failure{reason: reason, err: err}
}

// metrics reads a page through the parser in a buffer of fixed size.
func (f *fetcher) metrics(ctx context.Context, p *Params, request []byte, into *parser) *failure {
	return f.get(ctx, p, request, func(body io.Reader) error {
		buf := f.buffers.take()
		defer f.buffers.give(buf)
		have, skipping := 0, false
		for {
			n, err := body.Read(buf[have:])
			page := buf[:have+n]
			for {
				i := bytes.IndexByte(page, '\n')
				if i < 0 {
					break
				}
				if !skipping {
					into.line(page[:i])
				}
				skipping = false
				page = page[i+1:]
			}
			if err == io.EOF {
				if !skipping {
					into.line(page)
				}
				return nil
			}
			if err != nil {
				return err
			}
			have = copy(buf, page)
			if have == len(buf) { // a line longer than the buffer
				have, skipping = 0, true
			}
		}
	})
}

// discard reads an answer of which only the status matters.
func discard(body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}

// models asks for the served names, sorted. An empty list is garbage: an
// engine that serves nothing is one that is not ready.
func (f *fetcher) models(ctx context.Context, p *Params, request []byte) ([]string, []Model, *failure) {
	var names []string
	var listed []Model
	no := f.get(ctx, p, request, func(body io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(body, modelsBytes+1))
		if err != nil {
			return err
		}
		if len(b) > modelsBytes {
			return errTooLarge
		}
		var list struct {
			Data []json.RawMessage `json:"data"`
		}
		if json.Unmarshal(b, &list) != nil {
			return nil
		}
		for _, entry := range list.Data {
			m := Model{Entry: entry}
			if json.Unmarshal(entry, &m) == nil && m.ID != "" {
				names = append(names, m.ID)
				listed = append(listed, m)
			}
		}
		return nil
	})
	if no != nil {
		return nil, nil, no
	}
	if len(names) == 0 {
		return nil, nil, &failure{reason: ReasonGarbage, err: errors.New("no models listed")}
	}
	slices.Sort(names)
	return slices.Compact(names), listed, nil
}
