//go:build race

package key

// slowdown divides the sizes of the largest test bodies: the race detector
// makes reading them some twenty times slower.
const slowdown = 16
