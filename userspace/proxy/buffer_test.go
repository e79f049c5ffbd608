package proxy

import (
	"bytes"
	"errors"
	"io"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/tautline/tautline/userspace/key"
)

func TestFill(t *testing.T) {
	const most, memory = 1 << 20, 4 << 20
	for _, tc := range []struct {
		name     string
		src      io.Reader
		declared int64
		memory   int64
		want     int
		err      error
	}{
		{"declared", strings.NewReader(strings.Repeat("x", 1000)), 1000, memory, 1000, nil},
		{"not declared", strings.NewReader(strings.Repeat("x", 100000)), -1, memory, 100000, nil},
		{"byte by byte", iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 9000))), -1, memory, 9000, nil},
		{"the most", strings.NewReader(strings.Repeat("x", most)), most, memory, most, nil},
		{"declared too large", strings.NewReader(""), most + 1, memory, 0, errTooLarge},
		{"turns out too large", strings.NewReader(strings.Repeat("x", most+1)), -1, memory, 0, errTooLarge},
		{"no memory", strings.NewReader("x"), 1, 100, 0, errMemory},
		{"no memory to grow", strings.NewReader(strings.Repeat("x", 100000)), -1, 20000, 0, errMemory},
		{"broken", iotest.ErrReader(io.ErrUnexpectedEOF), 5, memory, 0, io.ErrUnexpectedEOF},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s buffers
			b, err := s.fill(tc.src, tc.declared, most, tc.memory)
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err == nil {
				if b.n != tc.want || strings.Trim(string(b.bytes()), "x") != "" {
					t.Errorf("%d bytes, want %d", b.n, tc.want)
				}
				b.release()
			}
			if used := s.used.Load(); used != 0 {
				t.Errorf("%d bytes are held at the end", used)
			}
		})
	}
}

// TestMemoryHoldsTheLongestBody: what the settings admit can be read, however its length
// is told; else each try would be answered 503, and told to come again.
func TestMemoryHoldsTheLongestBody(t *testing.T) {
	for _, most := range []int{1, 4095, 4096, 4097, 100000, firstBuffer, firstBuffer + 1, 1 << 20} {
		p := Default()
		p.MaxBodyBytes = int64(most)
		p.BodyMemory = int64(sort.Search(16<<20, func(n int) bool { p.BodyMemory = int64(n); return p.Validate() == nil }))
		for _, declared := range []int64{p.MaxBodyBytes, -1} {
			var s buffers
			b, err := s.fill(strings.NewReader(strings.Repeat("x", most)), declared, p.MaxBodyBytes, p.BodyMemory)
			if err != nil || b.n != most {
				t.Errorf("a body of %d, declared %d, in %d bytes of memory: %v", most, declared, p.BodyMemory, err)
				continue
			}
			b.release()
		}
	}
}

// panicking is a body that net/http finds read by two.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("invalid concurrent Body.Read call") }

func TestFillGivesBackOnAPanic(t *testing.T) {
	var s buffers
	func() {
		defer func() { _ = recover() }()
		_, _ = s.fill(panicking{}, -1, 1<<20, 4<<20)
	}()
	if n := s.used.Load(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// TestAnnouncedLengthClaimsLittle: a Content-Length alone must not cost memory.
func TestAnnouncedLengthClaimsLittle(t *testing.T) {
	var s buffers
	held := int64(0)
	_, err := s.fill(readerFunc(func([]byte) (int, error) {
		held = s.used.Load()
		return 0, io.ErrUnexpectedEOF
	}), 64<<20, 64<<20, 1<<30)
	if err == nil || held > firstBuffer {
		t.Errorf("a body of 64 MB that never came held %d bytes (error %v)", held, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestBufferOutlivesClose: a transport closes a body while it still writes it.
// The buffer must not go back to the pool before the write is over.
func TestBufferOutlivesClose(t *testing.T) {
	var s buffers
	b, err := s.fill(strings.NewReader("hello"), 5, 100, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := b.reader()
	b.release()
	var got bytes.Buffer
	n, err := r.writeTo(writerFunc(func(p []byte) (int, error) {
		_ = r.Close()
		_ = r.Close()
		if s.used.Load() == 0 {
			t.Error("the buffer went back during the write")
		}
		return got.Write(p)
	}), 100)
	if n != 5 || err != nil || got.String() != "hello" {
		t.Errorf("wrote %d bytes %q, error %v", n, got.String(), err)
	}
	if s.used.Load() != 0 {
		t.Error("the buffer is still held")
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, errBodyClosed) {
		t.Errorf("read after close: %v", err)
	}
	if _, err := r.writeTo(io.Discard, 1); !errors.Is(err, errBodyClosed) {
		t.Errorf("write after close: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestBuffersConcurrently: references let go from many sides add up.
func TestBuffersConcurrently(t *testing.T) {
	var s buffers
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				b, err := s.fill(strings.NewReader("abcdef"), -1, 100, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				r := b.reader()
				var inner sync.WaitGroup
				inner.Go(func() { _ = r.Close() })
				inner.Go(func() { _, _ = r.Read(make([]byte, 3)) })
				b.release()
				inner.Wait()
			}
		})
	}
	wg.Wait()
	if s.used.Load() != 0 {
		t.Errorf("%d bytes are held at the end", s.used.Load())
	}
}

func TestEdited(t *testing.T) {
	var s buffers
	b, err := s.fill(strings.NewReader(`{"id":"tagged","x":1}`), -1, 100, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.release()
	e, err := s.edited(b, []Edit{{At: key.Span{Start: 6, End: 14}, With: []byte(`"t"`)}, {At: key.Span{Start: 19, End: 20}, With: []byte("22")}}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer e.release()
	if got := string(e.bytes()); got != `{"id":"t","x":22}` {
		t.Errorf("edited: %s", got)
	}
}

// TestEditedTakesWhatItNeeds: a body that only loses something takes no more memory than
// it had.
func TestEditedTakesWhatItNeeds(t *testing.T) {
	var s buffers
	text := strings.Repeat("x", 1<<minBufferBits)
	b, err := s.fill(strings.NewReader(text), -1, 1<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.release()
	e, err := s.edited(b, []Edit{{At: key.Span{Start: 0, End: len(text)}, With: []byte(text[:4000])}}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer e.release()
	if used := s.used.Load(); used != 2<<minBufferBits {
		t.Errorf("%d bytes are held for two bodies of at most %d", used, len(text))
	}
}
