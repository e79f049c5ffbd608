package upstream

import "time"

// take returns the idle connection that was used last, or nil.
func (t *Transport) take() *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.idle)
	if n == 0 {
		return nil
	}
	c := t.idle[n-1]
	t.idle[n-1] = nil
	t.idle = t.idle[:n-1]
	return c
}

// put keeps a connection for the next request.
func (t *Transport) put(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = c.Close()
		return
	}
	c.since = time.Now()
	t.idle = append(t.idle, c)
	if t.IdleTimeout > 0 && !t.waking {
		t.wake(t.IdleTimeout)
	}
}

// wake sets the reaper; t.mu is held.
func (t *Transport) wake(in time.Duration) {
	t.waking = true
	if t.reaper == nil {
		t.reaper = time.AfterFunc(in, t.reap)
		return
	}
	t.reaper.Reset(in)
}

// reap closes the connections that have been idle for too long.
func (t *Transport) reap() {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := 0
	for _, c := range t.idle {
		if time.Since(c.since) < t.IdleTimeout {
			break
		}
		_ = c.Close()
		old++
	}
	t.drop(old)
	t.waking = false
	if len(t.idle) > 0 {
		t.wake(t.IdleTimeout - time.Since(t.idle[0].since))
	}
}

// drop takes the oldest n connections off the list.
func (t *Transport) drop(n int) {
	rest := copy(t.idle, t.idle[n:])
	clear(t.idle[rest:])
	t.idle = t.idle[:rest]
}

// CloseIdleConnections closes the connections that have nothing to do.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeIdle()
}

// Close closes the idle connections now, and those under way when their answers have
// been read. Further requests each get a connection of their own.
func (t *Transport) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.closeIdle()
}

func (t *Transport) closeIdle() {
	for _, c := range t.idle {
		_ = c.Close()
	}
	t.drop(len(t.idle))
	if t.reaper != nil {
		t.reaper.Stop()
		t.waking = false
	}
}
