package proxy

import (
	"time"

	"github.com/tautline/tautline/userspace/decide"
)

// Recorder is told what happened. Its methods are called from the request's
// goroutine, FirstToken by whichever goroutine learns of one (ResponseInfo), so it must
// call neither Router nor Splicer. They must not block, and may be called concurrently.
type Recorder interface {
	// Decided reports each choice, a retry's too.
	Decided(d decide.Decision)
	// FirstToken reports the time from the request's head to the first token,
	// for streamed answers only.
	FirstToken(backend string, ttft time.Duration)
	// Held reports each request that was held for so long, when that ends, and how it
	// did; and each that would have been, but for what how says.
	Held(how Hold, waited time.Duration)
	// Retried reports each time that a request is sent again.
	Retried(why Retry)
	// Finished is called exactly once for each request.
	Finished(s Summary)
}

// Summary is a request's end.
type Summary struct {
	Backend string        // the one it was sent to last; empty when there was none
	Code    int           // status sent to the client; 0 when none was
	Refusal Refusal       // why the agent answered itself; RefusalNone when a backend did
	Retry   Retry         // why it was sent again, if it was; the last reason
	Abort   Abort         // who broke it off, if anybody did
	Route   time.Duration // request read to request written, less what it was held; 0 when it was not written
	Took    time.Duration // head read to the end of the answer
}

// NoRecorder is the Recorder that forgets.
type NoRecorder struct{}

// Decided does nothing.
func (NoRecorder) Decided(decide.Decision) {}

// FirstToken does nothing.
func (NoRecorder) FirstToken(string, time.Duration) {}

// Held does nothing.
func (NoRecorder) Held(Hold, time.Duration) {}

// Retried does nothing.
func (NoRecorder) Retried(Retry) {}

// Finished does nothing.
func (NoRecorder) Finished(Summary) {}

// Retry says why a request was sent again, to a second backend or, RetryStale, on a
// second connection. Nothing had been written to the first one, or nothing that may not
// be sent twice, or, RetryRefused, it had said that it would not take the request.
type Retry uint8

// The reasons for a retry.
const (
	RetryNone    Retry = iota
	RetryConnect       // no connection to the backend
	RetryStale         // a kept connection had been closed by the backend: nothing was written, or a GET or its like
	RetryRemoved       // the backend was removed between the choice and the send
	RetryRefused       // it answered 503 or 508: the engine's queue is full, or a gateway would send it back
	retryCount
)

var retryNames = [retryCount]string{"none", "connect", "stale", "removed", "refused"}

// String returns the label value.
func (r Retry) String() string { return name(retryNames[:], int(r)) }

// Abort says which side broke a request off.
type Abort uint8

// The sides.
const (
	AbortNone    Abort = iota
	AbortClient        // the client went away
	AbortBackend       // the backend broke off, or was silent for too long, after its head
	AbortSplice        // the spliced response was damaged
	AbortDrain         // the drain's time was over
	AbortHandler       // an internal fault: the handler panicked
	abortCount
)

var abortNames = [abortCount]string{"none", "client", "backend", "splice", "drain", "handler"}

// String returns the label value.
func (a Abort) String() string { return name(abortNames[:], int(a)) }

// Refusals returns every Refusal, in order, so that a collector can show series
// that are still zero.
func Refusals() []Refusal { return count[Refusal](refusalCount) }

// Retries returns every Retry.
func Retries() []Retry { return count[Retry](retryCount) }

// Aborts returns every Abort.
func Aborts() []Abort { return count[Abort](abortCount) }

func count[T ~uint8](n T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = T(i)
	}
	return all
}

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "invalid"
}
