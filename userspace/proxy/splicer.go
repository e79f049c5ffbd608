package proxy

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/tautline/tautline/userspace/connect"
)

// ErrDamaged is what SplicedResponse.End returns when the client did not get
// exactly what the backend sent.
var ErrDamaged = errors.New("spliced response is damaged")

// Splicer is what the copy loop needs of the kernel splice. A Splicer may do
// nothing at all; the data path is the same. All methods may be called
// concurrently.
type Splicer interface {
	// WrapListener sees every client connection first. Identity when off.
	WrapListener(ln net.Listener) net.Listener
	// DialBackend opens a connection to the backend with this number, if that
	// does not speak TLS. The connection it returns comes back in Begin. It dials
	// by connect.Dial, which ctx may give a time.
	DialBackend(ctx context.Context, network, addr string, backend uint32) (net.Conn, error)
	// Begin is called once for each response with a body, before its head is
	// flushed. It never returns nil; a response that cannot be spliced gets a value whose
	// methods do nothing. The connections are those that the server accepted and
	// the transport dialled; with TLS on a side that side's is a *tls.Conn.
	Begin(client, backend net.Conn, r ResponseInfo) SplicedResponse
}

// ResponseInfo is what decides whether a response can be spliced at all.
type ResponseInfo struct {
	Backend        uint32
	ClientHTTP11   bool // the client spoke HTTP/1.1 and takes chunks
	ClientTLS      bool
	BackendChunked bool
	ClientChunked  bool
	Rewritten      bool // its bytes are changed on the way
	// Deltas: of a body that is Rewritten no byte of an event whose name ends in
	// ".delta" is changed, and Flushed is only called between two events.
	Deltas bool
	// Usage is given where the event near the end that tells the usage is wanted. Of
	// messages that may hold it and that the Splicer delivers unseen it is told the
	// end, with the chunk framing: by any goroutine, in order, before later bytes of
	// the body are read, and not after End or Abort has returned. It does not keep
	// the bytes.
	Usage func(end []byte)
	// FirstToken is given where the first token of the body is its first event, pings
	// aside. The Splicer may deliver it unseen, and tells how long ago it did: once at
	// most, from any goroutine, before later bytes of the body are read, and not
	// after End or Abort has returned.
	FirstToken func(ago time.Duration)
}

// SplicedResponse follows one response. Its methods are called by one goroutine,
// and exactly one of End and Abort is called, last.
type SplicedResponse interface {
	// Flushed says that the head and this many bytes of the backend's body (chunk
	// framing removed), as they came or rewritten, have been written and flushed to
	// the client; nothing of them is held back. It is called from the first token
	// on, and where there is a FirstToken with 0 too, before each read that may
	// block, and may arm the kernel.
	Flushed(body int64)
	// End says that the body was read to its end. On ErrDamaged the caller
	// resets the client's connection and writes nothing more. The backend's is the
	// Splicer's to close: by now it may serve another request.
	End() error
	// Abort says that the response ends in any other way.
	Abort()
}

// Redirecting is what a SplicedResponse may implement as well, so that a stream
// that runs through the kernel is not taken for one that stands still.
type Redirecting interface {
	// Redirected returns the bytes that the kernel has moved so far. It may be
	// called by any goroutine, until End or Abort and for a moment after.
	Redirected() int64
}

// NoSplice is the Splicer that never splices.
type NoSplice struct{}

// WrapListener returns ln.
func (NoSplice) WrapListener(ln net.Listener) net.Listener { return ln }

// DialBackend dials plain TCP.
func (NoSplice) DialBackend(ctx context.Context, network, addr string, _ uint32) (net.Conn, error) {
	var d net.Dialer
	d.SetMultipathTCP(false)
	return connect.Dial(ctx, d, network, addr)
}

// Begin returns a SplicedResponse that does nothing.
func (NoSplice) Begin(net.Conn, net.Conn, ResponseInfo) SplicedResponse { return notSpliced{} }

type notSpliced struct{}

func (notSpliced) Flushed(int64) {}
func (notSpliced) End() error    { return nil }
func (notSpliced) Abort()        {}
