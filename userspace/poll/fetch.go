package poll

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"
)

// lineBytes is the longest line that is read as one; the needed ones have
// a tenth of it. Longer lines are skipped.
const lineBytes = 16 << 10

// modelsBytes bounds a list of models.
const modelsBytes = 1 << 20

var (
	errRedirect = errors.New("redirect not followed")
	errTooLarge = errors.New("body too large")
)

// fetcher asks one backend. Not safe for concurrent use.
type fetcher struct {
	client    *http.Client
	transport *http.Transport
	buf       []byte
}

func newFetcher(p *Params) *fetcher {
	t := &http.Transport{
		MaxConnsPerHost:     1,
		MaxIdleConnsPerHost: 1,
		// uvicorn closes after 5 s; be first, or a request may meet the close.
		IdleConnTimeout:        4 * time.Second,
		DisableCompression:     true, // do not make the engine's CPU compress for us
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        1 << 10,
		ReadBufferSize:         16 << 10,
		TLSClientConfig:        p.TLS,
		Proxy:                  nil, // a backend is asked where it is, whatever the environment says
	}
	return &fetcher{
		transport: t,
		client: &http.Client{
			Transport:     t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		buf: make([]byte, lineBytes),
	}
}

func (f *fetcher) close() { f.transport.CloseIdleConnections() }

// get sends a request and hands its body to read, bounded in time and size.
func (f *fetcher) get(ctx context.Context, p *Params, r *http.Request, read func(io.Reader) error) *failure {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	resp, err := f.client.Do(r.WithContext(ctx))
	if err != nil {
		return broken(ReasonConnect, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end or given up: either way nothing to learn
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return &failure{reason: ReasonRedirect, status: resp.StatusCode, err: fmt.Errorf("%w: %s", errRedirect, resp.Header.Get("Location"))}
	case resp.StatusCode < 200 || resp.StatusCode >= 300:
		// Keep the connection when the error's text is short.
		_, _ = io.CopyN(io.Discard, resp.Body, lineBytes)
		return &failure{reason: ReasonStatus, status: resp.StatusCode, err: fmt.Errorf("status %d", resp.StatusCode)}
	}
	body := io.LimitedReader{R: resp.Body, N: p.MaxBody + 1}
	err = read(&body)
	switch {
	case body.N <= 0 || errors.Is(err, errTooLarge):
		return &failure{reason: ReasonTooLarge, err: errTooLarge}
	case err != nil:
		return broken(ReasonBroken, err)
	}
	return nil
}

// broken sorts the errors of client and body; reason is what is not special.
func broken(reason Reason, err error) *failure {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		reason = ReasonTimeout
	}
	return &failure{reason: reason, err: err}
}

// metrics reads a page through the parser in a fixed buffer.
func (f *fetcher) metrics(ctx context.Context, p *Params, r *http.Request, into *parser) *failure {
	return f.get(ctx, p, r, func(body io.Reader) error {
		have, skipping := 0, false
		for {
			n, err := body.Read(f.buf[have:])
			page := f.buf[:have+n]
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
			have = copy(f.buf, page)
			if have == len(f.buf) { // a line longer than the buffer
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
func (f *fetcher) models(ctx context.Context, p *Params, r *http.Request) ([]string, *failure) {
	var names []string
	no := f.get(ctx, p, r, func(body io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(body, modelsBytes+1))
		if err != nil {
			return err
		}
		if len(b) > modelsBytes {
			return errTooLarge
		}
		var list struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
		}
		if json.Unmarshal(b, &list) != nil {
			return nil
		}
		for _, m := range list.Data {
			if m.ID != "" {
				names = append(names, m.ID)
			}
		}
		return nil
	})
	if no != nil {
		return nil, no
	}
	if len(names) == 0 {
		return nil, &failure{reason: ReasonGarbage, err: errors.New("no models listed")}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
