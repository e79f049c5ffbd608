package key

import (
	"encoding/binary"

	"github.com/minio/highwayhash"
)

// chain hashes a canonical prompt as it is written and emits a key at each key
// position. The hash runs on over the blocks: its 1,024 bits of state are the
// link between them, so every key covers all bytes before it.
//
//	key = HighwayHash-64(secret, header || canonical[:256*block])
//
// The header holds the format, the model and the salt, each behind its length,
// padded with zeros to a multiple of 32 bytes, the hash's own step.
type chain struct {
	hash   highwayhash.Digest64
	keys   []Key
	blocks int // hashed so far
	next   int // the block count at which the next key stands; 0 = all keys known
	total  int // bytes written
	fill   int // of block
	block  [BlockBytes]byte
}

// format names the canonical form. It changes whenever keys of an unchanged
// body would, so that agents of two versions do not share keys by accident.
const format = "tautline/key/1\x00\x00"

const hashStep = 32

// reset starts a prompt. keys is appended to; fresh is a new hash.
func (c *chain) reset(fresh *highwayhash.Digest64, keys []Key, model, salt []byte) {
	c.hash = *fresh
	c.keys = keys
	c.blocks, c.next, c.total, c.fill = 0, 1, 0, 0
	n := len(format) + 16 + len(model) + len(salt)
	var length [8]byte
	_, _ = c.hash.Write([]byte(format))
	for _, part := range [2][]byte{model, salt} {
		binary.LittleEndian.PutUint64(length[:], uint64(len(part)))
		_, _ = c.hash.Write(length[:])
		_, _ = c.hash.Write(part)
	}
	var zeros [hashStep]byte
	_, _ = c.hash.Write(zeros[:(hashStep-n%hashStep)%hashStep])
}

// full says that all keys are known: bytes written from here on only count.
func (c *chain) full() bool { return c.next == 0 }

func (c *chain) write(p []byte) {
	c.total += len(p)
	if c.next == 0 {
		return
	}
	if c.fill > 0 {
		n := copy(c.block[c.fill:], p)
		c.fill += n
		if c.fill < BlockBytes {
			return
		}
		p = p[n:]
		c.fill = 0
		c.add(c.block[:])
	}
	for len(p) >= BlockBytes {
		c.add(p[:BlockBytes])
		p = p[BlockBytes:]
	}
	c.fill = copy(c.block[:], p)
}

// add hashes one block.
func (c *chain) add(block []byte) {
	if c.next == 0 {
		return
	}
	_, _ = c.hash.Write(block)
	c.blocks++
	if c.blocks < c.next {
		return
	}
	c.keys = append(c.keys, Key(c.hash.Sum64()))
	switch n := len(c.keys); {
	case n < DenseKeys:
		c.next++
	case n < MaxKeys:
		c.next += 2 << ((n - DenseKeys) / SparseRun)
	default:
		c.next = 0
	}
}
