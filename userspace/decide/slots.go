package decide

import "math/bits"

// slotSet is a set of slots.
type slotSet []uint64

func (s *slotSet) add(slot int) {
	for len(*s) <= slot/64 {
		*s = append(*s, 0)
	}
	(*s)[slot/64] |= 1 << (slot % 64)
}

func (s slotSet) remove(slot int) {
	if slot/64 < len(s) {
		s[slot/64] &^= 1 << (slot % 64)
	}
}

func (s slotSet) empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}

// appendUnion appends the slots of a or b to dst, in order.
func appendUnion(dst []int, a, b slotSet) []int {
	for i := range max(len(a), len(b)) {
		var w uint64
		if i < len(a) {
			w = a[i]
		}
		if i < len(b) {
			w |= b[i]
		}
		for ; w != 0; w &= w - 1 {
			dst = append(dst, i*64+bits.TrailingZeros64(w))
		}
	}
	return dst
}
