package poll

import (
	"errors"
	"net"
)

// Reason says why a request of a poll brought nothing.
type Reason uint8

// The reasons, in the order in which a request can fail.
const (
	ReasonNone     Reason = iota
	ReasonConnect         // no connection, or it broke before an answer
	ReasonTimeout         // no complete answer in time
	ReasonRedirect        // an answer that points elsewhere; not followed
	ReasonStatus          // an answer that is no success
	ReasonTooLarge        // a body over the limit
	ReasonBroken          // a body that ended early
	ReasonGarbage         // a success without anything that is understood

	reasonCount
)

var reasonNames = [reasonCount]string{
	ReasonNone:     "none",
	ReasonConnect:  "connect",
	ReasonTimeout:  "timeout",
	ReasonRedirect: "redirect",
	ReasonStatus:   "status",
	ReasonTooLarge: "too_large",
	ReasonBroken:   "broken",
	ReasonGarbage:  "garbage",
}

// String is the reason as a label value.
func (r Reason) String() string {
	if r < reasonCount {
		return reasonNames[r]
	}
	return "unknown"
}

// Reasons lists every reason but ReasonNone.
func Reasons() []Reason {
	list := make([]Reason, 0, reasonCount-1)
	for r := ReasonNone + 1; r < reasonCount; r++ {
		list = append(list, r)
	}
	return list
}

// failure is a request that brought nothing.
type failure struct {
	reason Reason
	status int // of an answer that is no success
	err    error
}

// nobody tells whether there was nobody to connect to.
func (f *failure) nobody() bool {
	var dial *net.OpError
	return f.reason == ReasonConnect && errors.As(f.err, &dial) && dial.Op == "dial"
}

func (f *failure) String() string {
	switch {
	case f == nil:
		return ""
	case f.err != nil:
		return f.err.Error()
	}
	return f.reason.String()
}
