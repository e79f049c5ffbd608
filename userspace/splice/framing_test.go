package splice_test

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/userspace/splice"
)

// Nearly every chunk behind the first goes through the kernel, response after
// response on the same connections.
func TestStreamIsSpliced(t *testing.T) {
	r := newRig(t)
	e := newEngine(t, stream("s", 100, 200))
	p := r.dial(t)
	for range 3 {
		p.ask(t, e, "/")
		same(t, p.answer(t), tokens("s", 100, 200))
	}
	if n := r.ended(splice.Ended, splice.Spliced); n != 3 {
		t.Errorf("%d responses were spliced, want 3", n)
	}
	c := r.counts()
	// On a slow machine the agent arms some chunks later.
	n := c[bpf.Redirected].Events
	t.Logf("%d of 300 chunks were redirected", n)
	if n < 240 {
		t.Errorf("%d of 300 chunks were redirected", n)
	}
	if n := c[bpf.ClaimTaken].Events; n != 1 {
		t.Errorf("%d connections were claimed, want 1", n)
	}
}

// What went in comes out on one side or the other.
func TestCountersAddUp(t *testing.T) {
	r := newRig(t)
	sent := make(chan int, 1)
	e := newEngine(t, func(c net.Conn, _ *http.Request) bool {
		n := len(head) + len(last)
		ok := send(c, head)
		for i := range 200 {
			m := chunk(token("s", i, 10+i*13%700))
			n += len(m)
			ok = ok && send(c, m)
			if i%3 == 0 {
				pause()
			}
		}
		ok = ok && send(c, last)
		sent <- n
		return ok
	})
	p := r.dial(t)
	p.ask(t, e, "/")
	p.answer(t)
	var bytes, events uint64
	for why, c := range r.counts() {
		if why >= bpf.Redirected {
			bytes += c.Bytes
			events += c.Events
		}
	}
	if want := <-sent; bytes != uint64(want) {
		t.Errorf("redirected and passed %d bytes, sent %d", bytes, want)
	}
	if events != 202 {
		t.Errorf("redirected and passed %d messages, sent 202", events)
	}
	l, ok, err := r.set.Latency(0)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if c := r.counts()[bpf.Redirected]; l.Chunks != c.Events || l.Bytes != c.Bytes {
		t.Errorf("backend has %d chunks of %d bytes, counters %d of %d", l.Chunks, l.Bytes, c.Events, c.Bytes)
	}
}

// Servers that frame otherwise get their bytes through, whatever goes which way.
func TestUnusualFraming(t *testing.T) {
	big := token("big", 0, 100_000)
	for name, tt := range map[string]struct {
		msgs []string
		want string
		why  splice.Reason // how the response is counted
	}{
		"each chunk in two sends": {
			msgs: halves("s", 60, 100), want: tokens("s", 60, 100), why: splice.NeverRedirected,
		},
		"many chunks in a send": {
			msgs: grouped("s", 60, 100, 7), want: tokens("s", 60, 100), why: splice.Spliced,
		},
		"a chunk larger than the window": {
			msgs: []string{chunk(token("a", 0, 50)), chunk(token("a", 1, 50)), chunk(big), chunk(token("a", 2, 50)), chunk(token("a", 3, 50))},
			want: tokens("a", 2, 50) + big + token("a", 2, 50) + token("a", 3, 50), why: splice.Spliced,
		},
		"chunk extension": {
			msgs: []string{chunk("one"), chunk("two"), "5;x=y\r\nthree\r\n", chunk("four"), chunk("five")},
			want: "onetwothreefourfive", why: splice.Spliced,
		},
		"terminator in the last chunk's send": {
			msgs: []string{chunk("one"), chunk("two"), chunk("three") + last}, want: "onetwothree", why: splice.Spliced,
		},
		"terminator in two sends": {
			msgs: []string{chunk("one"), chunk("two"), chunk("three"), "0\r", "\n\r\n"}, want: "onetwothree", why: splice.Spliced,
		},
		"data that looks like chunks": {
			msgs: []string{chunk("one"), chunk("5\r\nabcde\r\n0\r\n\r\n"), chunk("0\r\n\r\n"), chunk("HTTP/1.1 200 OK\r\n\r\n")},
			want: "one5\r\nabcde\r\n0\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", why: splice.Spliced,
		},
		"one byte a send": {
			msgs: strings.Split(chunk("one")+chunk("two")+chunk("three"), ""), want: "onetwothree", why: splice.NeverArmed,
		},
		"two tokens only": {
			msgs: []string{chunk("one") + last}, want: "one", why: splice.NeverArmed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			msgs := tt.msgs
			if !strings.HasSuffix(strings.Join(msgs, ""), last) {
				msgs = append(msgs[:len(msgs):len(msgs)], last)
			}
			e := newEngine(t, func(c net.Conn, _ *http.Request) bool {
				if !send(c, head) {
					return false
				}
				for i, m := range msgs {
					if i == 1 {
						firstPause()
					}
					pause()
					if !send(c, m) {
						return false
					}
				}
				return true
			})
			p := r.dial(t)
			for range 2 {
				p.ask(t, e, "/")
				same(t, p.answer(t), tt.want)
			}
			if n := r.ended(splice.Ended, tt.why); n != 2 {
				t.Errorf("%d of 2 responses ended as %s", n, tt.why)
				r.s.Counts(func(res splice.Result, why splice.Reason, n uint64) {
					if n > 0 {
						t.Log(res, why, n)
					}
				})
				t.Log(r.counts())
			}
		})
	}
}

func halves(name string, n, size int) []string {
	var msgs []string
	for i := range n {
		c := chunk(token(name, i, size))
		msgs = append(msgs, c[:len(c)/2], c[len(c)/2:])
	}
	return msgs
}

func grouped(name string, n, size, group int) []string {
	var msgs []string
	for i := 0; i < n; i += group {
		var b strings.Builder
		for j := i; j < min(i+group, n); j++ {
			b.WriteString(chunk(token(name, j, size)))
		}
		msgs = append(msgs, b.String())
	}
	return msgs
}

// H4: a response of several MB on a kernel with the FIONREAD change.
func TestLargeResponse(t *testing.T) {
	r := newRig(t)
	body := make([]byte, 5<<20/2)
	if _, err := rand.Read(body); err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, func(c net.Conn, _ *http.Request) bool {
		ok := send(c, head)
		for i, at := 0, 0; at < len(body); i++ {
			n := min(1+i*i*37%30_000, len(body)-at)
			ok = ok && send(c, chunk(string(body[at:at+n])))
			at += n
		}
		return ok && send(c, last)
	})
	p := r.dial(t)
	p.ask(t, e, "/")
	h := sha256.New()
	if _, err := io.Copy(h, p.open(t)); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%x", h.Sum(nil)), fmt.Sprintf("%x", sha256.Sum256(body)); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// Spliced and other responses take turns on the same two connections.
func TestReuseBetweenKinds(t *testing.T) {
	r := newRig(t)
	e := newEngine(t, func(c net.Conn, req *http.Request) bool {
		switch req.URL.Path {
		case "/fixed":
			return send(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfixed")
		case "/none":
			return send(c, "HTTP/1.1 204 No Content\r\n\r\n")
		case "/hints":
			return send(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n") && stream("hints", 10, 60)(c, req)
		case "/trailers":
			return send(c, head, chunk("one")) && func() bool { pause(); return true }() &&
				send(c, chunk("two"), "0\r\nX-Sum: 1\r\n\r\n")
		}
		return stream("s", 10, 60)(c, req)
	})
	p := r.dial(t)
	for range 3 {
		for _, path := range []string{"/", "/fixed", "/", "/trailers", "/hints", "/"} {
			p.ask(t, e, path)
			want := map[string]string{"/": tokens("s", 10, 60), "/fixed": "fixed", "/trailers": "onetwo", "/hints": tokens("hints", 10, 60)}[path]
			for {
				resp, err := http.ReadResponse(p.br, nil)
				if err != nil {
					t.Fatal(path, err)
				}
				b, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(path, err)
				}
				if resp.StatusCode < 200 {
					continue
				}
				same(t, string(b), want)
				break
			}
		}
	}
	if n := r.ended(splice.Ended, splice.BackendFraming); n != 3 {
		t.Errorf("%d responses of fixed length, want 3", n)
	}
	if n := r.ended(splice.Ended, splice.Spliced); n < 12 {
		t.Errorf("%d responses were spliced, want 12 or more", n)
	}
	if n := r.counts()[bpf.ClaimTaken].Events; n != 1 {
		t.Errorf("%d connections to the engine, want 1", n)
	}
}

// However a server hands its bytes to the kernel: they arrive, and what is a whole chunk
// is carried by the kernel, also where it lies in several pieces or was never copied.
func TestWaysOfSending(t *testing.T) {
	m := []byte(chunk(token("s", 0, 3000)))
	for name, write := range map[string]func(fd int) (int, error){
		"writev": func(fd int) (int, error) {
			return unix.Writev(fd, [][]byte{m[:3], m[3:5], m[5:1000], m[1000 : len(m)-2], m[len(m)-2:]})
		},
		"more to come": func(fd int) (int, error) {
			return unix.SendmsgN(fd, m, nil, nil, unix.MSG_MORE)
		},
		"sendfile": func(fd int) (int, error) {
			file, err := unix.MemfdCreate("chunk", unix.MFD_CLOEXEC)
			if err != nil {
				return 0, err
			}
			defer unix.Close(file)
			if _, err := unix.Write(file, m); err != nil {
				return 0, err
			}
			var off int64
			return unix.Sendfile(fd, file, &off, len(m))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			target, client := w.client()
			r := w.begin(target, client)
			raw, err := w.server.(syscall.Conn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				var n int
				if e := raw.Control(func(fd uintptr) { n, err = write(int(fd)) }); e != nil || err != nil || n != len(m) {
					t.Fatal(n, e, err)
				}
				w.expect(client, string(m))
			}
			w.relay(target, client, last)
			w.outcome(r, splice.Spliced)
			if n := w.redirected(); n != 3 {
				t.Errorf("%d messages were redirected, want 3", n)
			}
		})
	}
}
