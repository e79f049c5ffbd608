package key

import (
	"math/rand/v2"
	"testing"
)

// blockOf returns a block of bytes that matter, their neighbours and any other.
func blockOf(rng *rand.Rand, slashes bool) (block [blockBytes]byte) {
	const near = "\"!#{}[]|~zZ\\^_`Yy\x7f\x80\xdb\xfb \x1f\x00"
	for i := range block {
		if block[i] = near[rng.IntN(len(near))]; rng.IntN(3) == 0 {
			block[i] = byte(rng.IntN(256))
		}
		if block[i] == '\\' && (!slashes || rng.IntN(8) != 0) {
			block[i] = ']'
		}
	}
	return block
}

func TestMarks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 20000 {
		block := blockOf(rng, n%2 == 0)
		var quotes, brackets, letters, strings uint64
		inside := false
		stop := blockBytes
		for i, c := range block {
			if c == '\\' {
				stop = i
				break
			}
			bit := uint64(1) << i
			switch c {
			case '"':
				quotes |= bit
				inside = !inside
			case '{', '}', '[', ']':
				brackets |= bit
			case 'Y', 'y', '_', 0x7F:
				letters |= bit
			}
			if inside {
				strings |= bit
			}
		}
		gotQuotes, gotBrackets, gotStop := marks(&block)
		if gotQuotes != quotes || gotBrackets&^letters != brackets || gotStop != stop {
			t.Fatalf("%q: quotes %x, want %x; brackets %x, want %x; stop %d, want %d",
				block, gotQuotes, quotes, gotBrackets, brackets, gotStop, stop)
		}
		if got := between(quotes); stop == blockBytes && got != strings {
			t.Fatalf("%q: strings %x, want %x", block, got, strings)
		}
	}
}

func TestPlainText(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var dst [blockBytes]byte
	for range 20000 {
		block := blockOf(rng, true)
		start := rng.IntN(blockBytes)
		want := start
		for want < blockBytes && block[want] >= ' ' && block[want] != '"' && block[want] != '\\' {
			want++
		}
		if got := plainEnd(block[:], start); got != want {
			t.Fatalf("%q from %d: plain to %d, want %d", block, start, got, want)
		}
		room := dst[:rng.IntN(blockBytes)]
		n := copyPlain(room, block[start:])
		if n > want-start || string(room[:n]) != string(block[start:start+n]) {
			t.Fatalf("%q from %d: copied %d to %q, plain to %d", block, start, n, room[:n], want)
		}
		if short := min(len(room), blockBytes-start) - n; n < want-start && short >= stepBytes {
			t.Fatalf("%q from %d: copied %d only, plain to %d", block, start, n, want)
		}
	}
}
