package decide

import "github.com/tautline/tautline/userspace/key"

// demand counts for each key the requests in flight that begin with it. Its
// size follows the number of different keys in flight, at most key.MaxKeys per
// request: an open-addressing table that is at most 5/8 full and gives room
// back below 1/16. The zero value is empty and holds no memory.
type demand struct {
	cells []wish // a power of two of them
	count int    // of cells in use
	shift uint8  // of a hash, to a place in cells
}

// wish is one key; a cell whose requests are 0 is empty.
type wish struct {
	key      key.Key
	requests int32
}

// minDemand holds twenty of the longest prompts, so that a fleet that idles now
// and then does not allocate each time it wakes up.
const minDemand = 1 << 14

// place returns where k is, or the empty cell that it would take. Keys are
// hashes already; the multiplication is there for those that count up.
func (d *demand) place(k key.Key) int {
	mask := len(d.cells) - 1
	for p := d.home(k); ; p = (p + 1) & mask {
		if c := &d.cells[p]; c.requests == 0 || c.key == k {
			return p
		}
	}
}

// golden spreads what counts up over the upper bits.
const golden = 0x9e3779b97f4a7c15

func (d *demand) home(k key.Key) int { return int(uint64(k) * golden >> d.shift) }

// of returns how many requests begin with k.
func (d *demand) of(k key.Key) int32 {
	if d.count == 0 {
		return 0
	}
	return d.cells[d.place(k)].requests
}

// add counts one request.
func (d *demand) add(keys []key.Key) {
	for (d.count+len(keys))*8 > len(d.cells)*5 {
		d.resize(max(2*len(d.cells), minDemand))
	}
	cells, mask, shift := d.cells, len(d.cells)-1, d.shift
	for _, k := range keys {
		p := int(uint64(k) * golden >> shift)
		for cells[p&mask].requests != 0 && cells[p&mask].key != k {
			p++
		}
		c := &cells[p&mask]
		if c.requests == 0 {
			c.key = k
			d.count++
		}
		c.requests++
	}
}

// remove takes back what add counted. The keys must be the same.
func (d *demand) remove(keys []key.Key) {
	cells, mask, shift := d.cells, len(d.cells)-1, d.shift
	for _, k := range keys {
		p := int(uint64(k) * golden >> shift)
		for cells[p&mask].key != k {
			p++
		}
		c := &cells[p&mask]
		if c.requests--; c.requests > 0 {
			continue
		}
		d.count--
		if c.key = 0; cells[(p+1)&mask].requests != 0 {
			d.close(p & mask)
		}
	}
	for len(d.cells) > minDemand && d.count*16 < len(d.cells) {
		d.resize(len(d.cells) / 2)
	}
}

// close moves up what was pushed past the cell at p, which became empty.
func (d *demand) close(p int) {
	mask := len(d.cells) - 1
	for next := (p + 1) & mask; d.cells[next].requests != 0; next = (next + 1) & mask {
		if home := d.home(d.cells[next].key); (next-home)&mask >= (next-p)&mask {
			d.cells[p] = d.cells[next]
			p = next
		}
	}
	d.cells[p] = wish{}
}

func (d *demand) resize(size int) {
	from := d.cells
	d.cells, d.shift = make([]wish, size), 64
	for n := size; n > 1; n /= 2 {
		d.shift--
	}
	for _, c := range from {
		if c.requests > 0 {
			d.cells[d.place(c.key)] = c
		}
	}
}
