package index

import "github.com/tautline/tautline/userspace/key"

// holders maps each key that any backend holds to two sets of slots: those
// where it is confirmed, and those where it is held at all. One look-up per key
// answers for every backend.
//
// It is one open-addressing table of cells: the key, then the bits of both
// sets. An empty cell has key 0; the key that is 0 goes by another name.
type holders struct {
	cells []uint64
	words int // of each set: 64 slots to a word
	size  int // cells, a power of two
	count int
	shift uint8
}

// zeroKey stands for key 0, which marks an empty cell.
const zeroKey = 0x6b65792069732030

func nonZero(k key.Key) key.Key {
	if k == 0 {
		return zeroKey
	}
	return k
}

func newHolders(words, size int) holders {
	return holders{
		cells: make([]uint64, size*(1+2*words)), words: words,
		size: size, shift: tableShift(size),
	}
}

// find returns the place of k's cell in cells, or of the empty one it would take.
func (h *holders) find(k key.Key) int {
	stride := 1 + 2*h.words
	for p := spread(k, h.shift); ; p = (p + 1) & (h.size - 1) {
		if c := h.cells[p*stride]; c == uint64(k) || c == 0 {
			return p * stride
		}
	}
}

// set notes that slot holds k.
func (h *holders) set(k key.Key, slot int, confirmed bool) {
	k = nonZero(k)
	c := h.find(k)
	if h.cells[c] == 0 {
		if (h.count+1)*8 > h.size*5 {
			h.resize(h.words, 2*h.size)
			c = h.find(k)
		}
		h.count++
		h.cells[c] = uint64(k)
	}
	c += 1 + slot/64
	bit := uint64(1) << (slot % 64)
	if confirmed {
		h.cells[c] |= bit
	}
	h.cells[c+h.words] |= bit
}

// unset notes that k is not confirmed at slot, or not held at all.
func (h *holders) unset(k key.Key, slot int, held bool) {
	c := h.find(nonZero(k))
	if h.cells[c] == 0 {
		return
	}
	bit := uint64(1) << (slot % 64)
	h.cells[c+1+slot/64] &^= bit
	if held {
		return
	}
	h.cells[c+1+h.words+slot/64] &^= bit
	for _, w := range h.cells[c+1+h.words : c+1+2*h.words] {
		if w != 0 {
			return
		}
	}
	h.remove(c)
}

// remove empties the cell at c and closes the gap.
func (h *holders) remove(c int) {
	stride, mask := 1+2*h.words, h.size-1
	p := c / stride
	for next := (p + 1) & mask; h.cells[next*stride] != 0; next = (next + 1) & mask {
		home := spread(key.Key(h.cells[next*stride]), h.shift)
		if (next-home)&mask >= (next-p)&mask {
			copy(h.cells[p*stride:(p+1)*stride], h.cells[next*stride:(next+1)*stride])
			p = next
		}
	}
	clear(h.cells[p*stride : (p+1)*stride])
	h.count--
}

// resize moves everything to a table of size cells and words per set.
func (h *holders) resize(words, size int) {
	from, stride := *h, 1+2*h.words
	*h = newHolders(words, size)
	h.count = from.count
	for c := 0; c < len(from.cells); c += stride {
		k := from.cells[c]
		if k == 0 {
			continue
		}
		to := h.find(key.Key(k))
		h.cells[to] = k
		copy(h.cells[to+1:], from.cells[c+1:c+1+from.words])
		copy(h.cells[to+1+words:], from.cells[c+1+from.words:c+stride])
	}
}

// shrink gives memory back after many keys left.
func (h *holders) shrink() {
	size := h.size
	for size > minTable && h.count*8 < size {
		size /= 2
	}
	if size != h.size {
		h.resize(h.words, size)
	}
}
