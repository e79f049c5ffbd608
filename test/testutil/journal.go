package testutil

import (
	"bytes"
	"sync"
)

// Journal is what a process has written so far. It may be read while more comes.
type Journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}
