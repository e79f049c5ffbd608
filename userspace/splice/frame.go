package splice

import "bytes"

// A framer follows the responses on a backend connection: heads, then chunked
// bodies. It tells where the bytes that were handed up end: on a chunk boundary or
// not, and how much decoded body they hold.
//
// What it does not understand makes it lost until the next exchange: then nothing
// is spliced, and nothing else happens. It is stricter than net/http.
type framer struct {
	state   frameState
	chunked bool // the head said so
	final   bool // the head's status is not 1xx
	nline   int  // bytes of the current line, may exceed len(line)
	digits  int
	left    uint64 // of the current chunk's data
	body    int64  // decoded bytes of this response
	line    [64]byte
}

type frameState uint8

const (
	frameStatusLine frameState = iota
	frameHeader
	frameSize // a chunk's size line begins or goes on
	frameSizeLF
	frameData
	frameDataCR
	frameDataLF
	frameTrailer
	frameDone
	frameLost
)

// reset begins the next exchange.
func (f *framer) reset() { *f = framer{} }

// boundary tells whether the body goes on at a chunk's beginning.
func (f *framer) boundary() bool { return f.state == frameSize && f.digits == 0 }

// lost tells whether this response is not or no longer followed.
func (f *framer) lost() bool { return f.state == frameLost }

// feed takes the next bytes of the connection.
func (f *framer) feed(p []byte) {
	for len(p) > 0 && f.state != frameLost {
		switch f.state {
		case frameStatusLine, frameHeader, frameTrailer:
			p = f.feedLine(p)
		case frameData:
			n := min(f.left, uint64(len(p)))
			f.left -= n
			f.body += int64(n)
			p = p[n:]
			if f.left == 0 {
				f.state = frameDataCR
			}
		default:
			f.feedByte(p[0])
			p = p[1:]
		}
	}
}

func (f *framer) feedByte(c byte) {
	next := frameLost
	switch f.state {
	case frameSize:
		if d := digit(c); d >= 0 && f.digits < 8 {
			f.left = f.left<<4 | uint64(d)
			f.digits++
			return
		}
		if c == '\r' && f.digits > 0 {
			next = frameSizeLF
		}
	case frameSizeLF:
		f.digits = 0
		if c == '\n' && f.left > 0 {
			next = frameData
		} else if c == '\n' {
			next = frameTrailer
			f.nline = 0
		}
	case frameDataCR:
		if c == '\r' {
			next = frameDataLF
		}
	case frameDataLF:
		if c == '\n' {
			next = frameSize
		}
	}
	f.state = next
}

// feedLine takes bytes up to a line's end and returns the rest.
func (f *framer) feedLine(p []byte) []byte {
	i := bytes.IndexByte(p, '\n')
	part := p
	if i >= 0 {
		part = p[:i]
	}
	if f.nline < len(f.line) {
		copy(f.line[f.nline:], part)
	}
	f.nline += len(part)
	if i < 0 {
		return nil
	}
	line := f.line[:min(f.nline, len(f.line))]
	whole := f.nline <= len(f.line)
	if whole {
		line = bytes.TrimSuffix(line, []byte("\r"))
	}
	f.nline = 0
	f.endLine(line, whole)
	return p[i+1:]
}

// endLine takes a line, or the beginning of one that is too long to matter.
func (f *framer) endLine(line []byte, whole bool) {
	switch f.state {
	case frameStatusLine:
		// HTTP/1.1 200 OK
		if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' {
			f.state = frameLost
			return
		}
		f.final = line[9] != '1'
		f.chunked = false
		f.state = frameHeader
	case frameHeader:
		switch {
		case len(line) > 0:
			f.header(line, whole)
		case !f.final:
			f.state = frameStatusLine
		case f.chunked:
			f.state = frameSize
		default:
			f.state = frameLost
		}
	case frameTrailer:
		if len(line) == 0 {
			f.state = frameDone
		}
	}
}

func (f *framer) header(line []byte, whole bool) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !bytes.EqualFold(name, []byte("transfer-encoding")) {
		return
	}
	if f.chunked || !whole || !bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked")) {
		f.state = frameLost
		return
	}
	f.chunked = true
}

func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
