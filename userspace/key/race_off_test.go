//go:build !race

package key

const slowdown = 1
