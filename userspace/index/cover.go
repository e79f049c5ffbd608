package index

import "github.com/tautline/tautline/userspace/key"

// covered[n] is key.Blocks(n), looked up for each candidate of each request.
var covered = func() (c [key.MaxKeys + 1]int32) {
	for n := range c {
		c[n] = int32(key.Blocks(n))
	}
	return c
}()

// Covered returns how many blocks the first n keys cover. cover, when not nil,
// is the caller's own geometry: cover[i] blocks are covered by i+1 keys, and it
// must not decrease. nil stands for the geometry of package key; keys beyond
// its last cover as much as the last.
func Covered(n int, cover []int32) int {
	switch {
	case n <= 0:
		return 0
	case cover != nil:
		return int(cover[min(n, len(cover))-1])
	case n > key.MaxKeys:
		return int(covered[key.MaxKeys])
	}
	return int(covered[n])
}

// weight is how many blocks key i adds to those before it, at least one: every
// key takes room.
func weight(i int, cover []int32) int32 {
	if cover == nil && i < key.DenseKeys {
		return 1
	}
	return int32(max(Covered(i+1, cover)-Covered(i, cover), 1))
}
