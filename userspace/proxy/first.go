package proxy

import "bytes"

// tokenSign is what marks the first token of an answer.
type tokenSign uint8

const (
	// signNone: the answer is not streamed and shows no first token.
	signNone tokenSign = iota
	// signBytes: the first body bytes.
	signBytes
	// signData: the first data of an event stream, comments and pings aside.
	signData
	// signDelta: the first *.delta event of a Responses stream. The events
	// before it (response.created, response.in_progress) are sent before the
	// prompt has been read.
	signDelta
)

// firstToken looks for the first token in a body that is fed to it in pieces,
// split anywhere. It keeps the beginning of one line, never more.
type firstToken struct {
	sign  tokenSign
	found bool

	line   [256]byte // the beginning of the current line
	n      int       // bytes kept of it
	cut    bool      // the line is longer than what is kept
	skipLF bool      // the last byte was a CR that ended a line
	event  eventKind // what the current event's event: field says
}

type eventKind uint8

const (
	eventUnnamed eventKind = iota
	eventOther
	eventToken // a delta, or an end without one
	eventPing
)

// see takes the next bytes and tells whether the first token has been seen, now
// or before.
func (f *firstToken) see(p []byte) bool {
	if f.found || f.sign == signNone || len(p) == 0 {
		return f.found
	}
	if f.sign == signBytes {
		f.found = true
		return true
	}
	for len(p) > 0 && !f.found {
		if f.skipLF && p[0] == '\n' {
			f.skipLF = false
			p = p[1:]
			continue
		}
		f.skipLF = false
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			f.keep(p)
			f.endLine(false)
			break
		}
		f.keep(p[:end])
		f.endLine(true)
		f.n, f.cut = 0, false
		f.skipLF = p[end] == '\r'
		p = p[end+1:]
	}
	return f.found
}

// keep adds to the beginning of the line.
func (f *firstToken) keep(p []byte) {
	n := copy(f.line[f.n:], p)
	f.n += n
	f.cut = f.cut || n < len(p)
}

// endLine looks at a line: a whole one, or what has come of it so far.
func (f *firstToken) endLine(whole bool) {
	line := f.line[:f.n]
	if len(line) == 0 {
		if whole {
			f.event = eventUnnamed
		}
		return
	}
	field, value, colon := bytes.Cut(line, []byte(":"))
	if !colon {
		return
	}
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "event":
		if whole {
			f.event = kindOf(value)
			f.found = f.sign == signDelta && f.event == eventToken
		}
	case "data":
		if f.sign == signData {
			f.found = f.event != eventPing
			return
		}
		if f.event == eventUnnamed && (whole || f.cut) {
			f.found = kindOf(typeMember(value)) == eventToken
		}
	}
}

// kindOf reads the name of an event.
func kindOf(name []byte) eventKind {
	switch string(name) {
	case "":
		return eventUnnamed
	case "ping":
		return eventPing
	case "response.completed", "response.incomplete", "response.failed", "error":
		return eventToken
	}
	if bytes.HasSuffix(name, []byte(".delta")) {
		return eventToken
	}
	return eventOther
}

// typeMember returns the value of the first "type" member that the beginning of
// a JSON object shows, for engines that send no event: field.
func typeMember(data []byte) []byte {
	_, rest, ok := bytes.Cut(data, []byte(`"type"`))
	if !ok {
		return nil
	}
	rest = bytes.TrimLeft(rest, " :")
	if len(rest) == 0 || rest[0] != '"' {
		return nil
	}
	value, _, ok := bytes.Cut(rest[1:], []byte(`"`))
	if !ok {
		return nil
	}
	return value
}
