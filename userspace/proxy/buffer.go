package proxy

import (
	"errors"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Sizes of pooled body buffers: powers of two between these.
const (
	minBufferBits = 12 // 4 KiB
	maxBufferBits = 32
	// firstBuffer is the most that a declared Content-Length alone can claim:
	// a client that announces 64 MB and sends nothing gets no more than this.
	firstBuffer = 512 << 10
)

var (
	errMemory     = errors.New("request bodies in memory are at their limit")
	errTooLarge   = errors.New("request body is too large")
	errBodyClosed = errors.New("request body is closed")
)

// buffers hands out body buffers and keeps account of them. The bytes held by
// live buffers never exceed the limit; what rests in the pools is the garbage
// collector's.
type buffers struct {
	used  atomic.Int64
	pools [maxBufferBits + 1]sync.Pool
}

// get returns a buffer of at least n bytes with one reference, or errMemory.
func (s *buffers) get(n int, limit int64) (*buffer, error) {
	class := max(bits.Len(uint(max(n, 1)-1)), minBufferBits)
	if class > maxBufferBits {
		return nil, errMemory
	}
	size := int64(1) << class
	if s.used.Add(size) > limit {
		s.used.Add(-size)
		return nil, errMemory
	}
	b, ok := s.pools[class].Get().(*buffer)
	if !ok {
		b = &buffer{home: s, class: class, data: make([]byte, size)}
	}
	b.n = 0
	b.refs.Store(1)
	return b, nil
}

// buffer is a body in memory. It is shared by the handler and by each reader
// that a transport holds, and goes back to its pool when the last lets go.
type buffer struct {
	home  *buffers
	class int
	data  []byte
	n     int // bytes in use
	refs  atomic.Int32
}

// bytes returns the body; valid while a reference is held.
func (b *buffer) bytes() []byte { return b.data[:b.n] }

func (b *buffer) retain() { b.refs.Add(1) }

func (b *buffer) release() {
	switch n := b.refs.Add(-1); {
	case n < 0:
		panic("proxy: body buffer released twice")
	case n == 0:
		b.home.used.Add(-int64(len(b.data)))
		b.home.pools[b.class].Put(b)
	}
}

// room returns the most bytes that fill holds at once for a body of n bytes: its buffer,
// and the one of half the size that it outgrew.
func room(n int64) int64 {
	size := int64(1) << max(bits.Len64(uint64(n-1)), minBufferBits)
	if size == 1<<minBufferBits {
		return size
	}
	return size + size/2
}

// fill reads a body to its end into a buffer. The declared length is -1 when the
// client did not say. On an error no buffer is held.
func (s *buffers) fill(src io.Reader, declared, most, memory int64) (*buffer, error) {
	if declared > most {
		return nil, errTooLarge
	}
	first := int64(1 << minBufferBits)
	if declared >= 0 {
		first = min(declared, firstBuffer)
	}
	b, err := s.get(int(first), memory)
	if err != nil {
		return nil, err
	}
	whole := false
	defer func() { // a panic of src, too, must not cost memory for good
		if !whole && b != nil {
			b.release()
		}
	}()
	var next [1]byte // read where the buffer is full, which may be the end
	for {
		to := b.data[b.n:]
		full := len(to) == 0
		if full {
			to = next[:]
		}
		n, err := src.Read(to)
		if int64(b.n+n) > most {
			return nil, errTooLarge
		}
		if full && n > 0 {
			var no error
			if b, no = s.grow(b, memory); no != nil {
				return nil, no
			}
			b.data[b.n] = next[0]
		}
		b.n += n
		switch {
		case errors.Is(err, io.EOF):
			whole = true
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// grow moves a full buffer into one of twice its size. The old one is released in any case.
func (s *buffers) grow(b *buffer, memory int64) (*buffer, error) {
	defer b.release()
	next, err := s.get(2*len(b.data), memory)
	if err != nil {
		return nil, err
	}
	next.n = copy(next.data, b.bytes())
	return next, nil
}

// reader returns a request body for one attempt to send. It holds a reference
// until it is closed; the transport closes it, at times while another of its
// goroutines still writes.
func (b *buffer) reader() *bodyReader {
	b.retain()
	return &bodyReader{buf: b}
}

// bodyReader reads a buffer for a transport.
type bodyReader struct {
	mu     sync.Mutex
	buf    *buffer // nil once closed
	offset int
}

// Len returns how many bytes are left: the sign of a body that is in memory.
func (r *bodyReader) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return 0
	}
	return r.buf.n - r.offset
}

// Read copies the next bytes.
func (r *bodyReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		return 0, errBodyClosed
	}
	if r.offset == r.buf.n {
		return 0, io.EOF
	}
	n := copy(p, r.buf.data[r.offset:r.buf.n])
	r.offset += n
	return n, nil
}

// writeTo hands at most limit of the remaining bytes to w in one write, without
// copying them. The buffer is kept alive for the time of the write, even if the
// reader is closed meanwhile.
func (r *bodyReader) writeTo(w io.Writer, limit int64) (int64, error) {
	r.mu.Lock()
	b := r.buf
	if b == nil {
		r.mu.Unlock()
		return 0, errBodyClosed
	}
	b.retain()
	defer b.release()
	rest := b.data[r.offset:b.n]
	if int64(len(rest)) > limit {
		rest = rest[:limit]
	}
	r.offset += len(rest)
	r.mu.Unlock()
	if len(rest) == 0 {
		return 0, nil
	}
	n, err := w.Write(rest)
	return int64(n), err
}

// Close lets go of the buffer. It may be called more than once.
func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf != nil {
		r.buf.release()
		r.buf = nil
	}
	return nil
}
