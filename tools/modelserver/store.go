package modelserver

import (
	"encoding/json"
	"sync"
)

// item is a stored conversation item; its body carries the id.
type item struct {
	id   string
	body json.RawMessage
}

// talk is a stored conversation.
type talk struct {
	id       string
	created  int64
	metadata json.RawMessage
	items    []item
}

// storeBytes bounds the prompts and inputs that stored responses keep.
const storeBytes = 256 << 20

// store keeps responses and conversations in memory, each at most max of them,
// the oldest leaving first. Safe for concurrent use.
type store struct {
	max int

	mu        sync.Mutex
	responses map[string]*record
	order     []string // of responses, oldest first; may name deleted ones
	bytes     int      // of prompts and inputs in responses
	talks     map[string]*talk
	talkOrder []string
}

func newStore(max int) *store {
	t := &store{max: max}
	t.clear()
	return t
}

func (t *store) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.responses, t.order, t.bytes = make(map[string]*record), nil, 0
	t.talks, t.talkOrder = make(map[string]*talk), nil
}

func (t *store) put(x *record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.responses[x.id] == nil {
		t.order = append(t.order, x.id)
	}
	t.drop(x.id)
	t.responses[x.id] = x
	t.bytes += x.size()
	for len(t.order) > t.max || t.bytes > storeBytes && len(t.order) > 1 {
		t.drop(t.order[0])
		t.order = t.order[1:]
	}
}

// drop forgets a response, if there is one; its place in the order stays.
func (t *store) drop(id string) bool {
	x := t.responses[id]
	if x == nil {
		return false
	}
	t.bytes -= x.size()
	delete(t.responses, id)
	return true
}

// size is about what a response keeps in memory, in bytes.
func (x *record) size() int {
	n := len(x.prompt)
	for _, raw := range x.input {
		n += len(raw)
	}
	return n
}

func (t *store) response(id string) (*record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x, ok := t.responses[id]
	return x, ok
}

func (t *store) state(x *record) (string, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return x.state, x.produced
}

// end sets the state of a response that has not ended yet.
func (t *store) end(x *record, state string, produced int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x.state == stateQueued || x.state == stateInProgress {
		x.state, x.produced = state, produced
	}
}

func (t *store) deleteResponse(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drop(id)
}

func (t *store) putTalk(c *talk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.talks[c.id] = c
	t.talkOrder = append(t.talkOrder, c.id)
	for len(t.talkOrder) > t.max {
		delete(t.talks, t.talkOrder[0])
		t.talkOrder = t.talkOrder[1:]
	}
}

// onTalk calls f with the conversation, under the lock, if there is one.
func (t *store) onTalk(id string, f func(*talk)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.talks[id]
	if c == nil {
		return false
	}
	f(c)
	return true
}

func (t *store) deleteTalk(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.talks[id]
	delete(t.talks, id)
	return ok
}

func (t *store) items(id string) (list []item, ok bool) {
	ok = t.onTalk(id, func(c *talk) { list = append(list, c.items...) })
	return list, ok
}
