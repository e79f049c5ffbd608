package index

import "github.com/tautline/tautline/userspace/key"

// covered[n] is how many blocks the first n keys of a prompt cover: a key per
// block first, then SparseRun keys at each stride of 2, 4, 8, ... blocks.
var covered = func() (c [key.MaxKeys + 1]int32) {
	stride := int32(1)
	for n := 1; n <= key.MaxKeys; n++ {
		if n > key.DenseKeys && (n-key.DenseKeys-1)%key.SparseRun == 0 {
			stride *= 2
		}
		c[n] = c[n-1] + stride
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
