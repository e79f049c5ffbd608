package modelserver

import (
	"encoding/binary"
	"math/bits"
)

// hash is a chained 64-bit digest: of a prefix that ends at a block.
type hash uint64

const (
	mixA = 0x9e3779b97f4a7c15
	mixB = 0xd6e8feb86659fd93
)

// mix folds bytes into h, eight at a time. Not for adversaries.
func (h hash) mix(b []byte) hash {
	x := uint64(h) ^ uint64(len(b))*mixB
	for len(b) >= 8 {
		hi, lo := bits.Mul64(x^binary.LittleEndian.Uint64(b), mixA)
		x = hi ^ lo ^ bits.RotateLeft64(x, 23)
		b = b[8:]
	}
	var last [8]byte
	copy(last[:], b)
	hi, lo := bits.Mul64(x^binary.LittleEndian.Uint64(last[:]), mixB)
	return hash(hi ^ lo ^ mixA)
}

// chain returns the digest of every full block's prefix, and of all of b.
func chain(seed hash, b []byte) (blocks []hash, all hash) {
	blocks = make([]hash, 0, len(b)/blockBytes)
	h := seed
	for ; len(b) >= blockBytes; b = b[blockBytes:] {
		h = h.mix(b[:blockBytes])
		blocks = append(blocks, h)
	}
	return blocks, h.mix(b)
}

// block is one KV block. Blocks nobody uses stay cached, in order of their
// last use, until the space is wanted.
type block struct {
	hash       hash
	refs       int
	prev, next *block // in the list of cached blocks, when refs is 0
}

// blockPool is the KV memory: blocks in use, hashed or not, and cached ones.
// used + len(cached list) <= size. Not safe for concurrent use.
type blockPool struct {
	size   int
	used   int             // blocks with a user, hashed or not
	cached int             // hashed blocks without a user
	byHash map[hash]*block // hashed blocks, used or cached
	lru    block           // ring: lru.next is the next to go
}

func newBlockPool(size int) *blockPool {
	p := &blockPool{size: size, byHash: make(map[hash]*block)}
	p.lru.prev, p.lru.next = &p.lru, &p.lru
	return p
}

// hit counts the leading hashes that are held.
func (p *blockPool) hit(hashes []hash) int {
	for i, h := range hashes {
		if p.byHash[h] == nil {
			return i
		}
	}
	return len(hashes)
}

// take acquires the first hit hashes, which must be held, and room for fresh
// more blocks. It reports false, taking nothing, when there is no room.
func (p *blockPool) take(hashes []hash, hit, fresh int) bool {
	revived := 0
	for _, h := range hashes[:hit] {
		if p.byHash[h].refs == 0 {
			revived++
		}
	}
	if p.used+revived+fresh > p.size {
		return false
	}
	for _, h := range hashes[:hit] {
		p.use(p.byHash[h])
	}
	p.used += fresh
	p.shrink()
	return true
}

// fill gives one of a request's fresh blocks its hash. It reports false when
// another request has filled the same block meanwhile: then the fresh block is
// a duplicate, and stays an unhashed block of the caller's.
func (p *blockPool) fill(h hash) bool {
	if p.byHash[h] != nil {
		return false
	}
	p.byHash[h] = &block{hash: h, refs: 1}
	return true
}

// release returns hashed blocks, which stay cached, and fresh unhashed ones.
// Tails come first, so that heads are evicted last.
func (p *blockPool) release(hashes []hash, fresh int) {
	for i := len(hashes) - 1; i >= 0; i-- {
		b := p.byHash[hashes[i]]
		if b.refs--; b.refs == 0 {
			p.used--
			p.cached++
			b.prev, b.next = p.lru.prev, &p.lru
			b.prev.next, p.lru.prev = b, b
		}
	}
	p.used -= fresh
}

func (p *blockPool) use(b *block) {
	if b.refs++; b.refs == 1 {
		p.used++
		p.cached--
		b.prev.next, b.next.prev = b.next, b.prev
		b.prev, b.next = nil, nil
	}
}

func (p *blockPool) shrink() {
	for p.used+p.cached > p.size {
		b := p.lru.next
		b.prev.next, b.next.prev = b.next, b.prev
		p.cached--
		delete(p.byHash, b.hash)
	}
}

// clearCached drops every cached block.
func (p *blockPool) clearCached() {
	for p.cached > 0 {
		b := p.lru.next
		b.prev.next, b.next.prev = b.next, b.prev
		p.cached--
		delete(p.byHash, b.hash)
	}
}
