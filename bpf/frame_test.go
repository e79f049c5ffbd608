package bpf_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tautline/tautline/test/testutil"
)

// Results of frame.h, in the order of its enum.
const (
	more = iota
	whole
	lastChunk
	partial
	foreign
)

const (
	window    = 32768
	maxChunks = 1024
)

var framings = [...]string{"more", "whole", "last", "partial", "foreign"}

// A walker is the native build of frame.h and event.h with sanitizers, as a process.
type walker struct {
	mu  sync.Mutex
	in  io.WriteCloser
	out io.Reader
}

func newWalker(t testing.TB) *walker {
	t.Helper()
	if _, err := exec.LookPath("clang"); err != nil {
		t.Skip("needs clang to build frame.h natively:", err)
	}
	bin := filepath.Join(t.TempDir(), "frame")
	build := exec.Command("clang", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-o", bin, "testdata/frame.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	in, out := testutil.Start(t, exec.Command(bin))
	return &walker{in: in, out: out}
}

func (w *walker) walk(t testing.TB, msg []byte) int {
	t.Helper()
	framing, _, _ := w.ask(t, msg)
	return framing
}

func (w *walker) judge(t testing.TB, msg []byte) (framing int, delta bool) {
	t.Helper()
	framing, events, _ := w.ask(t, msg)
	return framing, events&1 != 0
}

// token tells whether a message begins with a first token.
func (w *walker) token(t testing.TB, msg []byte) bool {
	t.Helper()
	_, events, _ := w.ask(t, msg)
	return events&2 != 0
}

// usage returns what is kept of a message that may tell the usage.
func (w *walker) usage(t testing.TB, msg []byte) (end string, ok bool) {
	t.Helper()
	_, events, kept := w.ask(t, msg)
	return string(kept), events&4 != 0
}

func (w *walker) ask(t testing.TB, msg []byte) (framing int, events byte, kept []byte) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	b := binary.NativeEndian.AppendUint32(nil, uint32(len(msg)))
	if _, err := w.in.Write(append(b, msg...)); err != nil {
		t.Fatal(err)
	}
	read := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(w.out, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	got := read(2)
	if got[1]&4 != 0 {
		n := binary.NativeEndian.Uint32(read(4))
		if n > uint32(len(msg)) {
			t.Fatalf("%d bytes kept of a message of %d", n, len(msg))
		}
		kept = read(int(n))
	}
	return int(got[0]), got[1], kept
}

// reference is the obvious way to say the same.
func reference(msg string) int {
	for range maxChunks {
		if len(msg) < 4 {
			return partial
		}
		n, digits := 0, 0
		for digits < 4 {
			d := strings.IndexByte("0123456789abcdef", strings.ToLower(msg[digits : digits+1])[0])
			if d < 0 {
				break
			}
			n = n*16 + d
			digits++
		}
		if digits == 0 {
			return foreign
		}
		rest, result := line(msg[digits:])
		if result != whole {
			return result
		}
		if n == 0 {
			return lastChunk
		}
		if n > len(rest) {
			return partial
		}
		rest, result = line(rest[n:])
		if result != whole {
			return result
		}
		if rest == "" {
			return whole
		}
		msg = rest
	}
	return more
}

func line(s string) (string, int) {
	switch {
	case strings.HasPrefix(s, "\r\n"):
		return s[2:], whole
	case s == "" || s == "\r":
		return "", partial
	}
	return "", foreign
}

func chunk(n int) string { return fmt.Sprintf("%x\r\n%s\r\n", n, strings.Repeat("d", n)) }

func TestFrame(t *testing.T) {
	w := newWalker(t)
	for name, tt := range map[string]struct {
		msg  string
		want int
	}{
		"one chunk":            {chunk(5), whole},
		"upper case":           {"A\r\n0123456789\r\n", whole},
		"leading zeros":        {"000a\r\n0123456789\r\n", whole},
		"many chunks":          {chunk(1) + chunk(300) + chunk(17), whole},
		"most chunks":          {strings.Repeat(chunk(1), maxChunks), whole},
		"too many chunks":      {strings.Repeat(chunk(1), maxChunks+1), more},
		"largest":              {chunk(window - 8), whole},
		"last":                 {"0\r\n\r\n", lastChunk},
		"last of many zeros":   {"0000\r\n\r\n", lastChunk},
		"last behind a chunk":  {chunk(3) + "0\r\n\r\n", lastChunk},
		"last with trailers":   {"0\r\nX: y\r\n\r\n", lastChunk},
		"empty":                {"", partial},
		"half a size":          {"1", partial},
		"no data":              {"5\r\n", partial},
		"half the data":        {"5\r\nabc", partial},
		"no end of data":       {"5\r\nabcde", partial},
		"half an end of data":  {"5\r\nabcde\r", partial},
		"half a second chunk":  {chunk(5) + "5\r\nab", partial},
		"data too long":        {"5\r\nabcdef\r\n", foreign},
		"bare line feed":       {"5\nabcde\n", foreign},
		"chunk extension":      {"5;a=b\r\nabcde\r\n", foreign},
		"space after the size": {"5 \r\nabcde\r\n", foreign},
		"sign":                 {"+5\r\nabcde\r\n", foreign},
		"five digits":          {"00005\r\nabcde\r\n", foreign},
		"no size":              {"\r\nabcde\r\n", foreign},
		"event stream":         {"data: {}\n\n", foreign},
		"response head":        {"HTTP/1.1 200 OK\r\n\r\n", foreign},
		"size beyond window":   {"ffff\r\nabc", partial},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.walk(t, []byte(tt.msg)); got != tt.want {
				t.Errorf("got %s, want %s", framings[got], framings[tt.want])
			}
			if got := reference(tt.msg); got != tt.want {
				t.Errorf("reference: got %s, want %s", framings[got], framings[tt.want])
			}
		})
	}
}

// Every message that begins on a boundary and ends anywhere: whole exactly where a
// boundary is, with no terminating chunk before.
func TestFrameEverySplit(t *testing.T) {
	w := newWalker(t)
	chunks := []string{chunk(1), chunk(9), chunk(16), chunk(2), chunk(255), "0\r\n\r\n"}
	stream := strings.Join(chunks, "")
	boundary := map[int]bool{}
	at := 0
	for _, c := range chunks[:len(chunks)-1] {
		at += len(c)
		boundary[at] = true
	}
	for from := range boundary {
		for to := from + 1; to <= len(stream); to++ {
			got := w.walk(t, []byte(stream[from:to]))
			if (got == whole) != boundary[to] {
				t.Errorf("bytes %d to %d: %s", from, to, framings[got])
			}
		}
	}
}

func FuzzFrame(f *testing.F) {
	w := newWalker(f)
	for _, s := range []string{chunk(5), chunk(3) + "0\r\n\r\n", "5;x\r\nabcde\r\n", "ffff\r\n", "0005\r\nabcde\r", "1\r\n\r\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) > window {
			return // the verdict refuses these before it looks
		}
		if got, want := w.walk(t, msg), reference(string(msg)); got != want {
			t.Errorf("%q: got %s, want %s", msg, framings[got], framings[want])
		}
	})
}
