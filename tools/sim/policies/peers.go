package policies

import (
	"sort"

	"github.com/tautline/tautline/tools/sim/traffic"
	"github.com/tautline/tautline/userspace/key"
)

// PowerOfTwo draws two backends and takes the one with fewer requests in flight.
func PowerOfTwo() Policy {
	return Policy{Name: "power-of-two", New: func(s Setup) Chooser { return &powerOfTwo{newBooks(s)} }}
}

type powerOfTwo struct{ books }

func (p *powerOfTwo) Route(_ *traffic.Job, _ Instant) int {
	a, b := p.draw(-1), -1
	if a >= 0 {
		b = p.draw(a)
	}
	if b >= 0 && p.active[b] < p.active[a] {
		a = b
	}
	return p.take(a)
}

// draw returns a random backend that is up and is not but, or -1.
func (p *powerOfTwo) draw(but int) int {
	n, at := 0, -1
	for slot := range p.active {
		if slot == but || p.down[slot] {
			continue
		}
		if n++; p.rnd.IntN(n) == 0 {
			at = slot
		}
	}
	return at
}

// BoundedHash is consistent hashing with bounded loads: a ring of virtual
// nodes, keyed by the beginning of the prompt; a backend with more than factor
// times the mean of requests in flight is passed over.
func BoundedHash(factor float64) Policy {
	return Policy{Name: "bounded-hash", New: func(s Setup) Chooser {
		c := &boundedHash{books: newBooks(s), factor: factor, blocks: max(1, 4096/s.BlockTokens)}
		for slot := range s.Backends {
			for v := range 160 {
				c.ring = append(c.ring, vnode{traffic.Mix(uint64(slot)+1, uint64(v)), slot})
			}
		}
		sort.Slice(c.ring, func(a, b int) bool { return c.ring[a].at < c.ring[b].at })
		return c
	}}
}

type vnode struct {
	at   uint64
	slot int
}

type boundedHash struct {
	books
	factor float64
	blocks int // how much of the prompt is hashed
	ring   []vnode
}

func (c *boundedHash) Route(j *traffic.Job, _ Instant) int {
	var h uint64
	if n := min(len(j.Keys), c.blocks); n > 0 {
		h = traffic.Mix(uint64(j.Keys[n-1]), 7)
	} else {
		h = c.rnd.Uint64()
	}
	total, up := 1, 0
	for slot, a := range c.active {
		if !c.down[slot] {
			total += a
			up++
		}
	}
	if up == 0 {
		return -1
	}
	limit := int(c.factor*float64(total)/float64(up)) + 1
	at := sort.Search(len(c.ring), func(i int) bool { return c.ring[i].at >= h })
	for i := range c.ring {
		if v := c.ring[(at+i)%len(c.ring)]; !c.down[v.slot] && c.active[v.slot] < limit {
			return c.take(v.slot)
		}
	}
	return c.take(c.leastActive())
}

// CacheAware is the policy of that name in SGLang's and vLLM's routers: while
// the fleet is balanced, the backend with the longest match when that is more
// than threshold of the prompt, else the one with the fewest requests in
// flight; when out of balance (by the absolute and the relative bound), the
// shortest queue.
// Their trees hold text; keys stand for it here. The tree is cut to limit keys
// per backend, least recent first.
func CacheAware(name string, threshold float64, abs int, rel float64, limit int) Policy {
	return Policy{Name: name, New: func(s Setup) Chooser {
		c := &cacheAware{books: newBooks(s), threshold: threshold, abs: abs, rel: rel}
		for range s.Backends {
			c.trees = append(c.trees, newTree(limit))
		}
		return c
	}}
}

type cacheAware struct {
	books
	threshold float64
	abs       int
	rel       float64
	trees     []*tree
}

func (c *cacheAware) Route(j *traffic.Job, _ Instant) int {
	lo, hi := int(^uint(0)>>1), 0
	for slot, a := range c.active {
		if !c.down[slot] {
			lo, hi = min(lo, a), max(hi, a)
		}
	}
	slot := -1
	if hi-lo > c.abs && float64(hi) > c.rel*float64(lo) {
		slot = c.leastActive()
	} else if n := len(j.Keys); n > 0 {
		best := c.least(func(slot int) float64 { return -float64(c.trees[slot].run(j.Keys)) })
		if best >= 0 && float64(c.trees[best].run(j.Keys)) > c.threshold*float64(n) {
			slot = best
		}
	}
	if slot < 0 {
		slot = c.leastActive()
	}
	if slot >= 0 {
		c.trees[slot].insert(j.Keys)
	}
	return c.take(slot)
}

// tree is an LRU of keys.
type tree struct {
	limit int
	nodes []treeNode // 0 is the list's ring
	at    map[key.Key]int32
}

type treeNode struct {
	key        key.Key
	prev, next int32
}

func newTree(limit int) *tree {
	return &tree{limit: limit, nodes: make([]treeNode, 1), at: map[key.Key]int32{}}
}

func (t *tree) run(keys []key.Key) int {
	for i, k := range keys {
		if _, ok := t.at[k]; !ok {
			return i
		}
	}
	return len(keys)
}

// insert makes the keys the most recent, the first of them most of all.
func (t *tree) insert(keys []key.Key) {
	for i := min(len(keys), t.limit) - 1; i >= 0; i-- {
		n, ok := t.at[keys[i]]
		switch {
		case ok:
			t.unlink(n)
		case len(t.at) >= t.limit:
			n = t.nodes[0].prev
			t.unlink(n)
			delete(t.at, t.nodes[n].key)
		default:
			t.nodes = append(t.nodes, treeNode{})
			n = int32(len(t.nodes) - 1)
		}
		first := t.nodes[0].next
		t.nodes[n] = treeNode{keys[i], 0, first}
		t.nodes[first].prev = n
		t.nodes[0].next = n
		t.at[keys[i]] = n
	}
}

func (t *tree) unlink(n int32) {
	p, x := t.nodes[n].prev, t.nodes[n].next
	t.nodes[p].next, t.nodes[x].prev = x, p
}

// Random places requests blindly; it is the floor of every comparison.
func Random() Policy {
	return Policy{Name: "random", New: func(s Setup) Chooser { return &random{newBooks(s)} }}
}

type random struct{ books }

func (r *random) Route(*traffic.Job, Instant) int {
	return r.take(r.least(func(int) float64 { return 0 }))
}
