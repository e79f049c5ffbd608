package pin

import "bytes"

// EventCarriesIDs says whether an SSE event of that name ("" = unnamed) has to
// pass the Rewriter. Only names that end in ".delta" need not: they are nearly
// the whole of a stream, and hold a piece of text or of arguments and an item's
// id. Stored ids are in the six events that embed the response
// (response.created, .queued, .in_progress, .completed, .incomplete, .failed)
// and in the text of "error"; unknown events pass the Rewriter to be safe.
func EventCarriesIDs(name string) bool { return carriesIDs([]byte(name)) }

func carriesIDs(name []byte) bool { return !bytes.HasSuffix(name, []byte(".delta")) }

// field is the SSE field whose line is being read.
type field uint8

const (
	fieldUnknown field = iota // its name is being read
	fieldData
	fieldEvent
	fieldOther // a comment or any other field
)

// maxName bounds the names, of fields and events, that are told apart.
const maxName = 64

// events follows the framing of an SSE stream. The zero value stands at the
// start of an event.
type events struct {
	field   field
	cr      bool // the last byte was a CR: an LF belongs to it
	begun   bool // the event has a byte
	line    bool // the line has a byte
	space   bool // a space here is no part of the value
	data    bool // the event has data already
	through bool // the event's name says that it carries no ids
	named   bool // the event has a name
	topic   bool // its name is "error"
	nameLen int  // of the name being read; maxName+1: longer
	name    [maxName]byte
}

// sse passes src through and hands the data of events to the scanner.
func (r *Rewriter) sse(dst, src []byte) []byte {
	e := &r.events
	for len(src) > 0 {
		if c := src[0]; c == '\n' || c == '\r' {
			if c == '\r' || !e.cr {
				dst = r.lineEnd(dst)
			}
			e.cr = c == '\r'
			dst, src = append(dst, c), src[1:]
			continue
		}
		e.cr, e.begun, e.line = false, true, true
		n := lineLen(src)
		if e.field == fieldUnknown {
			n = e.readName(src[:n], ':')
			dst, src = append(dst, src[:n]...), src[n:]
			continue
		}
		if e.space {
			e.space = false
			if src[0] == ' ' {
				dst, src = append(dst, ' '), src[1:]
				continue
			}
		}
		switch {
		case e.field == fieldData && !e.through:
			if !e.data {
				e.data = true
				r.scanner.reset(e.topic || !e.named)
			}
			dst = r.scanner.scan(dst, src[:n])
		case e.field == fieldEvent:
			e.readName(src[:n], 0)
			fallthrough
		default:
			dst = append(dst, src[:n]...)
		}
		src = src[n:]
	}
	return dst
}

// readName reads a name up to and with the byte stop; 0 = all of b.
func (e *events) readName(b []byte, stop byte) int {
	for i, c := range b {
		if c == stop && stop != 0 {
			e.field = fieldOther
			switch string(e.name[:min(e.nameLen, maxName)]) {
			case "data":
				e.field = fieldData
			case "event":
				e.field = fieldEvent
			}
			e.space, e.nameLen = true, 0
			return i + 1
		}
		if e.nameLen < maxName {
			e.name[e.nameLen] = c
		}
		e.nameLen = min(e.nameLen+1, maxName+1)
	}
	return len(b)
}

// lineEnd ends the line at hand, and the event if the line is empty.
func (r *Rewriter) lineEnd(dst []byte) []byte {
	e := &r.events
	dst = r.scanner.flush(dst)
	if !e.line {
		*e = events{}
		return dst
	}
	if e.field == fieldEvent {
		name := e.name[:min(e.nameLen, maxName)]
		e.named = e.nameLen > 0
		e.topic = string(name) == "error"
		e.through = e.nameLen <= maxName && !carriesIDs(name)
	}
	e.field, e.line, e.space, e.nameLen = fieldUnknown, false, false, 0
	return dst
}

// lineLen is how many bytes come before the next line end.
func lineLen(b []byte) int {
	if n := bytes.IndexByte(b, '\n'); n >= 0 {
		b = b[:n]
	}
	if n := bytes.IndexByte(b, '\r'); n >= 0 {
		return n
	}
	return len(b)
}
