// Package index remembers which backend holds which keys.
//
// It is pure: the time is passed in, as a monotonic instant counted from any
// fixed moment. All methods may be called concurrently; readers do not block
// each other.
package index
