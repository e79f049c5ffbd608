package sim

import (
	"fmt"
	"io"
	"strings"
)

// bar is a progress bar of one line.
type bar struct {
	w     io.Writer
	last  int // cells that are full, as drawn
	width int
}

func newBar(w io.Writer) *bar { return &bar{w: w, last: -1} }

func (b *bar) draw(finished, all int) {
	if b.w == nil {
		return
	}
	const cells = 40
	n := finished * cells / max(all, 1)
	if n == b.last && finished != all {
		return
	}
	b.last = n
	line := fmt.Sprintf("[%s%s] %d of %d runs", strings.Repeat("#", n), strings.Repeat(".", cells-n), finished, all)
	b.width = max(b.width, len(line)) // a shorter line leaves nothing of the one that it replaces
	fmt.Fprintf(b.w, "\r%-*s", b.width, line)
}

// end leaves the bar's line, once.
func (b *bar) end() {
	if b.w != nil {
		fmt.Fprintln(b.w)
		b.w = nil
	}
}
