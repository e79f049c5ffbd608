// Package load keeps what each backend is busy with: the agent's own requests
// and uncached prompt tokens in flight, the polled queue in a time window, and
// whether the backend admits new requests.
//
// It is pure: the time is passed in, as a monotonic instant counted from any
// fixed moment. All methods may be called concurrently.
package load
