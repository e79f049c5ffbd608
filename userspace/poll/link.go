package poll

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tautline/tautline/userspace/connect"
)

// headBytes bounds the head of an answer.
const headBytes = 64 << 10

var longAgo = time.Unix(1, 0)

// link is a connection to one backend, made when needed, kept between polls,
// and used by one goroutine. It does what http.Client does with a third of its
// CPU: no goroutines to wake, no timers but the connection's deadline. It asks
// by GET, follows nothing and asks for no compression. Parsing is net/http's.
type link struct {
	address string // host:port
	tls     *tls.Config

	conn    net.Conn // nil = not connected
	unwatch func() bool
	used    time.Time
	left    io.LimitedReader // what this answer may still take of conn
	in      *bufio.Reader    // small: bodies are read past it
}

func newLink(base *url.URL, config *tls.Config) *link {
	l := &link{address: connect.Address(base), tls: connect.TLS(base, config)}
	l.in = bufio.NewReaderSize(&l.left, 4<<10)
	return l
}

// get is the bytes of a GET request for base with path after its own.
func get(base *url.URL, path, accept string) []byte {
	u := *base
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+path, ""
	u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = "", false, "", ""
	r := http.Request{Header: make(http.Header)}
	if u.User != nil {
		password, _ := u.User.Password()
		r.SetBasicAuth(u.User.Username(), password)
	}
	b := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: tautline\r\nAccept: %s\r\n", u.RequestURI(), u.Host, accept)
	if a := r.Header.Get("Authorization"); a != "" {
		b = fmt.Appendf(b, "Authorization: %s\r\n", a)
	}
	return append(b, "\r\n"...)
}

// do sends a request and returns the answer once its head is there. Its body
// may be read until the deadline; finish must follow. bodyBytes bounds what is
// read of the connection. Ending ctx breaks off at once.
func (l *link) do(ctx context.Context, request []byte, deadline time.Time, bodyBytes int64) (*http.Response, error) {
	if l.conn != nil && time.Since(l.used) > connect.IdleLimit {
		l.close()
	}
	for reused := l.conn != nil; ; reused = false {
		if err := l.open(ctx, deadline); err != nil {
			return nil, err
		}
		// After the deadline, not before: an end of ctx puts it into the past.
		if err := l.conn.SetDeadline(deadline); err != nil {
			l.close()
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			l.close()
			return nil, err
		}
		l.left.N = headBytes
		_, err := l.conn.Write(request)
		var answer *http.Response
		if err == nil {
			answer, err = l.head()
		}
		if err == nil {
			l.left.N += bodyBytes
			return answer, nil
		}
		untouched := l.left.N == headBytes
		l.close()
		var late net.Error
		if !reused || !untouched || errors.As(err, &late) && late.Timeout() {
			return nil, err
		}
		// The backend closed the kept connection while the request was on its way.
	}
}

// head reads the head of the answer, and skips informational ones.
func (l *link) head() (*http.Response, error) {
	for range 8 {
		answer, err := http.ReadResponse(l.in, nil)
		if err != nil {
			return nil, err
		}
		if answer.StatusCode >= 200 {
			return answer, nil
		}
	}
	return nil, errors.New("only informational answers")
}

// finish ends the use of an answer. whole says that its body was read to its
// end, so that the connection can be kept.
func (l *link) finish(answer *http.Response, whole bool) {
	if !whole || answer.Close || l.in.Buffered() > 0 {
		l.close()
		return
	}
	// A deadline that is left would wake the process when it passes.
	_ = l.conn.SetDeadline(time.Time{})
	l.used = time.Now()
}

func (l *link) open(ctx context.Context, deadline time.Time) error {
	if l.conn != nil {
		return nil
	}
	d := net.Dialer{Deadline: deadline}
	conn, err := d.DialContext(ctx, "tcp", l.address)
	if err != nil {
		return err
	}
	l.unwatch = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(longAgo) })
	l.conn = conn
	if l.tls != nil {
		t := tls.Client(conn, l.tls)
		l.conn = t
		if err := conn.SetDeadline(deadline); err != nil {
			l.close()
			return err
		}
		if err := t.HandshakeContext(ctx); err != nil {
			l.close()
			return err
		}
	}
	l.left.R = l.conn
	l.in.Reset(&l.left)
	return nil
}

// close is for any state.
func (l *link) close() {
	if l.conn == nil {
		return
	}
	l.unwatch()
	_ = l.conn.Close() // nothing of ours is on its way
	l.conn = nil
}
