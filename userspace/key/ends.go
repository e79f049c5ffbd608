package key

// ends remembers where the long strings and containers of a body end, in the
// order of their starts. The scan of the top level passes over everything
// once; with its notes the walk of the prompt, which goes level by level, does
// not search the same bytes again at each level.
type ends struct {
	list []end
	next int // the entry that the walk will want next, most often
}

type end struct{ start, end int32 }

const (
	endsLong  = 128     // shorter values are searched again: that is cheaper
	endsDepth = 6       // deeper containers are not noted, to bound the memory
	endsMax   = 1 << 30 // nor is anything after this position
)

func (e *ends) reset() { e.list, e.next = e.list[:0], 0 }

// add notes a finished value that no noted one after it contains.
func (e *ends) add(start, after int) {
	if after-start >= endsLong && after < endsMax {
		e.list = append(e.list, end{int32(start), int32(after)})
	}
}

// open notes the start of a container and returns its entry, for close.
func (e *ends) open(start int) int {
	e.list = append(e.list, end{start: int32(min(start, endsMax))})
	return len(e.list) - 1
}

// close completes an entry, or drops it if the container was short: then all
// entries after it are of its inside and would be dropped too.
func (e *ends) close(entry, after int) {
	if start := int(e.list[entry].start); after-start < endsLong || after >= endsMax {
		e.list = e.list[:entry]
		return
	}
	e.list[entry].end = int32(after)
}

// find returns the end of the value that starts at a position, or bad if it
// was not noted.
func (e *ends) find(start int) int {
	low, high := e.next, len(e.list)
	if low > 0 && int(e.list[low-1].start) >= start {
		low, high = 0, low
	}
	for ahead := 1; low+ahead < high; ahead *= 2 { // most often it is near
		if int(e.list[low+ahead-1].start) >= start {
			high = low + ahead
			break
		}
		low += ahead
	}
	for low < high {
		middle := int(uint(low+high) >> 1)
		if int(e.list[middle].start) < start {
			low = middle + 1
		} else {
			high = middle
		}
	}
	e.next = low
	if low < len(e.list) && int(e.list[low].start) == start {
		return int(e.list[low].end)
	}
	return bad
}
