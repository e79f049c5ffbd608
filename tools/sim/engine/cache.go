package engine

import "github.com/tautline/tautline/tools/sim/traffic"

// cache is a prefix cache of a fixed number of tokens: a tree of segments, of
// which the least recently used go first, from the tail of a path towards its
// head and token by token. What a running request uses is pinned.
type cache struct {
	capacity int
	used     int // tokens held
	pinned   int // tokens held by nodes that are pinned, directly or below
	written  int // tokens of the answers that are being written, which belong to no node yet
	nodes    []node
	spare    []int32
	at       map[uint64]int32
	old      []oldNode // heap of what may go; entries that became stale are skipped
	tick     int64
}

type node struct {
	id     uint64
	parent int32
	held   int // tokens of the segment's head that are cached
	kids   int // children in the tree
	pins   int // requests that pin it, and pinned children
	used   int64
}

type oldNode struct {
	used int64
	id   uint64
	node int32
}

const root = int32(0)

func newCache(capacity int) *cache {
	return &cache{capacity: capacity, nodes: make([]node, 1), at: map[uint64]int32{}}
}

// room is how many tokens are free or can be evicted.
func (c *cache) room() int { return c.capacity - c.pinned - c.written }

// admit makes room for all that the job has so far and for the token that it
// writes next, puts it into the cache and pins it. It returns the tokens that
// were there before, or ok false, with nothing changed, when what is in use and
// what is promised to others leave too little room.
func (c *cache) admit(j *traffic.Job, promised int) (cached int, ok bool) {
	from, depth := root, 0
	for ; depth < len(j.Segs); depth++ {
		n, found := c.at[j.Segs[depth].ID]
		if !found {
			break
		}
		from = n
		held := min(c.nodes[n].held, j.Segs[depth].Tokens)
		cached += held
		if held < j.Segs[depth].Tokens {
			depth++
			break
		}
	}
	c.pin(from)
	need := j.Prompt + int(j.Work.Kept) - cached
	if need+1+promised > c.room() {
		c.unpin(from)
		return 0, false
	}
	c.written++
	c.makeRoom(need)
	deepest := from
	if from != root { // a head of the segment may have been all that was left
		if missing := j.Segs[depth-1].Tokens - c.nodes[from].held; missing > 0 {
			c.nodes[from].held += missing
			c.used += missing
			c.pinned += missing
		}
	}
	for _, s := range j.Segs[depth:] {
		if n, found := c.at[s.ID]; found { // below a cut segment, its own tail may still stand
			deepest = n
			continue
		}
		deepest = c.add(deepest, s.ID, s.Tokens)
	}
	c.pin(deepest)
	c.unpin(from)
	j.Work.Node = deepest
	return cached, true
}

// write lets the answers in writing grow by some tokens.
func (c *cache) write(tokens int) {
	c.written += tokens
	c.makeRoom(0)
}

// finish lets go of the job's prompt and keeps its answer behind it.
func (c *cache) finish(j *traffic.Job) {
	c.written -= j.Output - int(j.Work.Kept)
	deepest := j.Work.Node
	if j.Answer != 0 {
		deepest = c.keep(j, j.Answer, j.Output)
	}
	c.release(j, deepest)
}

// pause lets go of a job in the middle of its answer, of which it keeps what is
// written. To the job that is a prompt from now on.
func (c *cache) pause(j *traffic.Job, written int) {
	c.written -= written - int(j.Work.Kept)
	id := j.Answer
	if id == 0 { // nobody continues it but the job itself
		id = traffic.Mix(j.Segs[0].ID, uint64(j.Index)|1<<63)
	}
	if j.Work.Kept == 0 {
		c.release(j, c.keep(j, id, written))
		j.Segs = append(j.Segs, traffic.Segment{ID: id, Tokens: written})
	} else {
		last := &j.Segs[len(j.Segs)-1]
		c.release(j, c.keep(j, last.ID, written))
		last.Tokens = written
	}
	j.Work.Kept = int32(written)
}

// keep makes the segment id, which follows what the job pins or is the end of
// it, hold so many tokens.
func (c *cache) keep(j *traffic.Job, id uint64, tokens int) int32 {
	n, there := c.at[id]
	switch {
	case !there:
		c.makeRoom(tokens)
		return c.add(j.Work.Node, id, tokens)
	case n != j.Work.Node: // another job wrote the same answer
		return j.Work.Node
	}
	more := max(tokens-c.nodes[n].held, 0)
	c.makeRoom(more)
	c.nodes[n].held += more
	c.used += more
	c.pinned += more
	return n
}

// abandon lets go of a job in the middle of its prompt. What is not computed
// yet was never there, unless another job counts on it.
func (c *cache) abandon(j *traffic.Job) {
	c.written--
	c.release(j, j.Work.Node)
	for n, left := j.Work.Node, int(j.Work.Left); left > 0 && n != root; {
		w := &c.nodes[n]
		if w.pins > 0 || w.kids > 0 {
			return
		}
		cut := min(w.held, left)
		w.held -= cut
		c.used -= cut
		left -= cut
		if w.held > 0 {
			return
		}
		n = c.drop(n)
	}
}

// release makes the path to deepest the most recently used one and unpins the
// job's node.
func (c *cache) release(j *traffic.Job, deepest int32) {
	c.tick++
	for n := deepest; n != root; n = c.nodes[n].parent {
		c.nodes[n].used = c.tick
	}
	c.unpin(j.Work.Node)
	c.offer(deepest)
}

func (c *cache) add(parent int32, id uint64, tokens int) int32 {
	var n int32
	if k := len(c.spare); k > 0 {
		n = c.spare[k-1]
		c.spare = c.spare[:k-1]
	} else {
		c.nodes = append(c.nodes, node{})
		n = int32(len(c.nodes) - 1)
	}
	c.nodes[n] = node{id: id, parent: parent, held: tokens}
	c.nodes[parent].kids++
	c.at[id] = n
	c.used += tokens
	return n
}

// pin keeps the node and all above it.
func (c *cache) pin(n int32) {
	for n != root {
		if c.nodes[n].pins++; c.nodes[n].pins > 1 {
			return
		}
		c.pinned += c.nodes[n].held
		n = c.nodes[n].parent
	}
}

func (c *cache) unpin(n int32) {
	for n != root {
		if c.nodes[n].pins--; c.nodes[n].pins > 0 {
			return
		}
		c.pinned -= c.nodes[n].held
		c.offer(n)
		n = c.nodes[n].parent
	}
}

// offer puts a leaf that nobody pins among what may go.
func (c *cache) offer(n int32) {
	if w := &c.nodes[n]; n != root && w.pins == 0 && w.kids == 0 {
		c.push(oldNode{w.used, w.id, n})
	}
}

// makeRoom evicts until need tokens are free, or nothing is left that is not
// pinned.
func (c *cache) makeRoom(need int) {
	for over := min(c.used+c.written+need-c.capacity, c.used-c.pinned); over > 0; {
		o := c.pop()
		w := &c.nodes[o.node]
		if w.id != o.id || w.used != o.used || w.pins != 0 || w.kids != 0 || w.held == 0 {
			continue
		}
		cut := min(w.held, over)
		w.held -= cut
		c.used -= cut
		over -= cut
		if w.held > 0 {
			c.push(o)
			continue
		}
		c.drop(o.node)
	}
}

// drop removes a leaf that holds nothing any more and returns its parent.
func (c *cache) drop(n int32) (parent int32) {
	w := &c.nodes[n]
	delete(c.at, w.id)
	parent = w.parent
	*w = node{}
	c.spare = append(c.spare, n)
	c.nodes[parent].kids--
	c.offer(parent)
	return parent
}

func (c *cache) push(o oldNode) {
	c.old = append(c.old, o)
	i := len(c.old) - 1
	for i > 0 && o.used < c.old[(i-1)/2].used {
		c.old[i] = c.old[(i-1)/2]
		i = (i - 1) / 2
	}
	c.old[i] = o
}

func (c *cache) pop() oldNode {
	top := c.old[0]
	last := c.old[len(c.old)-1]
	c.old = c.old[:len(c.old)-1]
	n := len(c.old)
	if n == 0 {
		return top
	}
	i := 0
	for {
		k := 2*i + 1
		if k >= n {
			break
		}
		if k+1 < n && c.old[k+1].used < c.old[k].used {
			k++
		}
		if c.old[k].used >= last.used {
			break
		}
		c.old[i] = c.old[k]
		i = k
	}
	c.old[i] = last
	return top
}
