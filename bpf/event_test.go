package bpf_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tautline/tautline/userspace/pin"
)

// eventMax is EVENT_MAX of event.h.
const eventMax = 4096

var deltaEvent = regexp.MustCompile(`^event: (response\.[^\r\n]*)\ndata:[^\r\n]*\n\n$`)

// isDelta is the obvious way to say what event.h says of a message.
func isDelta(msg string) bool {
	if len(msg) > eventMax || reference(msg) != whole {
		return false
	}
	size, rest, _ := strings.Cut(msg, "\r\n")
	var n int
	if _, err := fmt.Sscanf(size, "%x", &n); err != nil || n+2 != len(rest) {
		return false
	}
	m := deltaEvent.FindStringSubmatch(rest[:n])
	return m != nil && len(m[1]) <= 64 && strings.HasSuffix(m[1], ".delta")
}

func framed(event string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(event), event) }

const delta = "event: response.output_text.delta\ndata: {\"delta\":\"Hi\",\"item_id\":\"msg_1\",\"type\":\"response.output_text.delta\"}\n\n"

func named(name string) string { return strings.Replace(delta, "response.output_text.delta", name, 1) }

func TestEvent(t *testing.T) {
	w := newWalker(t)
	fill := func(n int) string { return "event: response.x.delta\ndata:" + strings.Repeat("x", n) + "\n\n" }
	overhead := len(framed(fill(1000))) - 1000
	for name, tt := range map[string]struct {
		msg  string
		want bool
	}{
		"text":                     {framed(delta), true},
		"arguments":                {framed(named("response.function_call_arguments.delta")), true},
		"shortest name":            {framed(named("response.delta")), true},
		"longest name":             {framed(named("response." + strings.Repeat("n", 49) + ".delta")), true},
		"name too long":            {framed(named("response." + strings.Repeat("n", 50) + ".delta")), false},
		"name far too long":        {framed(named("response." + strings.Repeat("n", 3000) + ".delta")), false},
		"no space before data":     {framed(fill(10)), true},
		"one byte":                 {framed(fill(1)), true},
		"no text":                  {framed(fill(0)), true},
		"largest":                  {framed(fill(eventMax - overhead)), true},
		"too large":                {framed(fill(eventMax - overhead + 1)), false},
		"far too large":            {framed(fill(window - overhead - 10)), false},
		"leading zeros":            {"00" + framed(fill(0x20)), true},
		"completed":                {framed(named("response.completed")), false},
		"created":                  {framed(named("response.created")), false},
		"done":                     {framed(named("response.output_text.done")), false},
		"delta inside the name":    {framed(named("response.delta.y")), false},
		"deltas":                   {framed(named("response.x.deltas")), false},
		"no dot":                   {framed(named("response.xdelta")), false},
		"space behind the name":    {framed(named("response.x.delta ")), false},
		"upper case":               {framed(named("response.x.DELTA")), false},
		"another family":           {framed(named("thread.message.delta")), false},
		"error":                    {framed(named("error")), false},
		"no name":                  {framed("data: {\"type\":\"response.output_text.delta\"}\n\n"), false},
		"data first":               {framed("data: {}\nevent: response.x.delta\n\n"), false},
		"no space before the name": {framed(strings.Replace(delta, "event: ", "event:", 1)), false},
		"id line":                  {framed(strings.Replace(delta, "data:", "id: 1\ndata:", 1)), false},
		"comment first":            {framed(": x\n" + delta), false},
		"blank line first":         {framed("\n" + delta), false},
		"renamed":                  {framed(strings.TrimSuffix(delta, "\n") + "event: response.completed\n\n"), false},
		"renamed before data":      {framed(strings.Replace(delta, "data:", "event: response.completed\ndata:", 1)), false},
		"two data lines":           {framed(strings.TrimSuffix(delta, "\n") + "data: x\n\n"), false},
		"no data":                  {framed("event: response.output_text.delta\n\n"), false},
		"two events":               {framed(delta + delta), false},
		"completed behind":         {framed(delta + named("response.completed")), false},
		"completed before":         {framed(named("response.completed") + delta), false},
		"half an event behind":     {framed(delta + "event: response.comp"), false},
		"two chunks":               {framed(delta) + framed(delta), false},
		"completed in a chunk":     {framed(delta) + framed(named("response.completed")), false},
		"terminator behind":        {framed(delta) + "0\r\n\r\n", false},
		"half an event":            {framed(delta[:len(delta)-1]), false},
		"without an end":           {framed(delta[:len(delta)-2]), false},
		"blank line too many":      {framed(delta + "\n"), false},
		"CRLF":                     {framed(strings.ReplaceAll(delta, "\n", "\r\n")), false},
		"CR":                       {framed(strings.ReplaceAll(delta, "\n", "\r")), false},
		"CRLF at the end":          {framed(strings.TrimSuffix(delta, "\n\n") + "\r\n\r\n"), false},
		"CRLF behind the name":     {framed(strings.Replace(delta, "\n", "\r\n", 1)), false},
		"CR in the text":           {framed(strings.Replace(delta, "Hi", "H\ri", 1)), false},
		"NUL and bytes above 7f":   {framed(strings.Replace(delta, "Hi", "\x00\x8a\x8d\x0b\x0c\xff\x09\x0e", 1)), true},
		"chat":                     {framed("data: {\"id\":\"chatcmpl-1\"}\n\n"), false},
		"not even an event":        {framed("event: response."), false},
		"one character":            {framed("e"), false},
		"size that does not fit":   {"7f\r\n" + delta + "\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := w.judge(t, []byte(tt.msg)); got != tt.want {
				t.Errorf("%.200q: got %t, want %t", tt.msg, got, tt.want)
			}
			if got := isDelta(tt.msg); got != tt.want {
				t.Errorf("%.200q: reference: got %t, want %t", tt.msg, got, tt.want)
			}
		})
	}
}

// Every piece of a stream of chunks: only those that are exactly one delta event.
func TestEventEverySplit(t *testing.T) {
	w := newWalker(t)
	event := func(name string) string { return "event: response." + name + "\ndata:1\n\n" }
	one, other := event("x.delta"), event("completed")
	stream := strings.Join([]string{
		framed(event("created")), framed(one), framed(event("yy.delta")), framed(one + one), framed(one + other),
		framed(other), framed(one), framed(other), "0\r\n\r\n",
	}, "")
	for from := range len(stream) {
		for to := from + 1; to <= len(stream); to++ {
			msg := stream[from:to]
			want := msg == framed(one) || msg == framed(event("yy.delta"))
			if _, got := w.judge(t, []byte(msg)); got != want {
				t.Errorf("bytes %d to %d: %t: %q", from, to, got, msg)
			}
		}
	}
}

// The line's ends at every place within the eight bytes that are looked at.
func TestEventEveryLength(t *testing.T) {
	w := newWalker(t)
	for name := range 60 {
		for text := range 40 {
			for _, end := range []string{"\n\n", "\n", "\r\n", "\n\nx", "\r\r", "\n\r", "\n\n\n"} {
				msg := framed("event: response." + strings.Repeat("n", name) + ".delta\ndata:" + strings.Repeat("t", text) + end)
				if _, got := w.judge(t, []byte(msg)); got != isDelta(msg) || got != (name <= 49 && end == "\n\n") {
					t.Fatalf("%q: %t", msg, got)
				}
			}
		}
	}
}

// Whatever the kernel takes the rewriter would have left alone, byte for byte, and
// stands where it stood before.
func unchanged(t *testing.T, msg []byte) {
	t.Helper()
	_, event, _ := strings.Cut(string(msg), "\r\n")
	event = strings.TrimSuffix(event, "\r\n")
	r := pin.NewRewriter("site.0123abcd..", pin.FormSSE)
	if got := string(r.Append(nil, []byte(event))); got != event || !r.AtBoundary() {
		t.Errorf("the rewriter makes %q of %q; at a boundary: %t", got, event, r.AtBoundary())
	}
}

func FuzzEvent(f *testing.F) {
	w := newWalker(f)
	for _, s := range []string{
		delta, delta + delta, named("response.completed"), named("response.delta.y"), named("response.delta"),
		strings.Replace(delta, "msg_1", "resp_1", 1), "event: response.x.delta\ndata:\n\n", "event: response.x.delta\r\ndata:\n\n",
	} {
		f.Add([]byte(s), []byte(framed(s)))
	}
	f.Fuzz(func(t *testing.T, event, msg []byte) {
		for _, msg := range [][]byte{msg, []byte(framed(string(event)))} {
			if len(msg) > window {
				continue // the verdict refuses these before it looks
			}
			framing, got := w.judge(t, msg)
			if want := isDelta(string(msg)); got != want || got && framing != whole {
				t.Errorf("%q: got %t, want %t", msg, got, want)
			}
			if got {
				unchanged(t, msg)
			}
		}
	})
}

var tokenEvent = regexp.MustCompile(`^(data:|event: [^p\r\n])`)

// isToken is the obvious way to say what event.h says of a first token.
func isToken(msg string) bool {
	_, rest, _ := strings.Cut(msg, "\r\n")
	return reference(msg) == whole && len(rest) >= 8 && tokenEvent.MatchString(rest)
}

func TestToken(t *testing.T) {
	w := newWalker(t)
	for name, tt := range map[string]struct {
		msg  string
		want bool
	}{
		"chat":                   {framed("data: {\"id\":\"chatcmpl-1\"}\n\n"), true},
		"no space":               {framed("data:{}\n\n"), true},
		"messages":               {framed("event: message_start\ndata: {\"type\":\"message_start\"}\n\n"), true},
		"two events":             {framed("data: {}\n\ndata: {}\n\n"), true},
		"two chunks":             {framed("data: {}\n\n") + framed("data: {}\n\n"), true},
		"many digits":            {"0" + framed("data: 0123456789abcdef\n\n"), true},
		"comment":                {framed(": ping - 2026-11-30\n\n"), false},
		"ping":                   {framed("event: ping\ndata: {\"type\": \"ping\"}\n\n"), false},
		"ping without a space":   {framed("event:ping\ndata: {}\n\n"), false},
		"comment before data":    {framed(": x\ndata: {}\n\n"), false},
		"id before data":         {framed("id: 1\ndata: {}\n\n"), false},
		"blank line before data": {framed("\ndata: {}\n\n"), false},
		"unnamed":                {framed("event: \ndata: {}\n\n"), false},
		"datum":                  {framed("datum: {}\n\n"), false},
		"half a field":           {framed("dat"), false},
		"the shortest":           {framed("data: "), true},
		"shorter":                {framed("data:"), false},
		"last chunk":             {"0\r\n\r\n", false},
		"partial":                {framed("data: {}\n\n")[:12], false},
		"terminator behind":      {framed("data: {}\n\n") + "0\r\n\r\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.token(t, []byte(tt.msg)); got != tt.want {
				t.Errorf("%q: got %t, want %t", tt.msg, got, tt.want)
			}
			if got := isToken(tt.msg); got != tt.want {
				t.Errorf("%q: reference: got %t, want %t", tt.msg, got, tt.want)
			}
		})
	}
}

func FuzzTokenAndUsage(f *testing.F) {
	w := newWalker(f)
	for _, s := range []string{"data: {}\n\n", "data: {1}}\n\n", "data: {1}}\n\ndata: [DONE]\n\n", strings.Repeat("x", 1500) + "1}}\n\n", "event: x\n\n", "event: ping\n\n", ": x\n\n", "data:", ""} {
		f.Add([]byte(s), []byte(framed(s)))
	}
	f.Fuzz(func(t *testing.T, event, msg []byte) {
		for _, msg := range [][]byte{msg, []byte(framed(string(event)))} {
			if len(msg) > window {
				continue // the verdict refuses these before it looks
			}
			if got, want := w.token(t, msg), isToken(string(msg)); got != want {
				t.Errorf("%q: token: got %t, want %t", msg, got, want)
			}
			end, got := w.usage(t, msg)
			if want := isUsage(string(msg)); got != want || got && end != keptOf(string(msg)) {
				t.Errorf("%q: usage: got %t and %q, want %t", msg, got, end, want)
			}
		}
	})
}

var usageEvent = regexp.MustCompile(`(?s)([^"]}}|.{17}ONE\])\n\n\r\n$`)

// isUsage is the obvious way to say what event.h says of the usage.
func isUsage(msg string) bool { return reference(msg) == whole && usageEvent.MatchString(msg) }

// usageKept is USAGE_BYTES of abi.h.
const usageKept = 1000

// keptOf returns the last whole words of a message.
func keptOf(msg string) string { return msg[len(msg)-min(len(msg)/8*8, usageKept):] }

func TestUsage(t *testing.T) {
	w := newWalker(t)
	for name, tt := range map[string]struct {
		msg  string
		want bool
	}{
		"chat":                {framed(`data: {"choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}` + "\n\n"), true},
		"with details":        {framed(`data: {"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}}` + "\n\n"), true},
		"messages":            {framed(`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}` + "\n\n"), true},
		"behind a token":      {framed(`data: {"choices":[{"delta":{"content":"x"}}]}`+"\n\n") + framed(`data: {"usage":{"prompt_tokens":9}}`+"\n\n"), true},
		"in one chunk":        {framed(`data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\n" + `data: {"usage":{"prompt_tokens":9}}` + "\n\n"), true},
		"before the mark":     {framed(`data: {"usage":{"prompt_tokens":9}}`+"\n\n") + framed("data: [DONE]\n\n"), true},
		"in the mark's chunk": {framed(`data: {"usage":{"prompt_tokens":9}}` + "\n\ndata: [DONE]\n\n"), true},
		"only the mark":       {framed("data: [DONE]\n\n"), false},
		"only the mark, 00":   {"00" + framed("data: [DONE]\n\n"), false},
		"not at the end":      {framed(`data: {"usage":{"prompt_tokens":9}}`+"\n\n") + framed(": bye\n\n"), false},
		"large":               {framed("data: " + strings.Repeat("{", 5000) + "1}}\n\n"), true},
		"of the size kept":    {framed("data: " + strings.Repeat("{", usageKept-17) + "}}\n\n"), true},
		"of one word":         {"3\r\n}}\n\n\r\n", false},
		"a token":             {framed(`data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}` + "\n\n"), false},
		"a token's braces":    {framed(`data: {"choices":[{"index":0,"delta":{"content":"}}"}}]}` + "\n\n"), false},
		"a text of Messages":  {framed(`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}` + "\n\n"), false},
		"braces of Messages":  {framed(`data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"1}}"}}` + "\n\n"), false},
		"null":                {framed(`data: {"choices":[],"usage":null}` + "\n\n"), false},
		"CRLF":                {framed(`data: {"usage":{"prompt_tokens":9}}` + "\r\n\r\n"), false},
		"empty":               {framed("}}\n\n"), true},
		"partial":             {framed(`data: {"usage":{"prompt_tokens":9}}` + "\n\n")[:30], false},
	} {
		t.Run(name, func(t *testing.T) {
			end, got := w.usage(t, []byte(tt.msg))
			if got != tt.want {
				t.Errorf("%q: got %t, want %t", tt.msg, got, tt.want)
			}
			if want := keptOf(tt.msg); got && end != want {
				t.Errorf("%q: kept %q, want %q", tt.msg, end, want)
			}
			if got := isUsage(tt.msg); got != tt.want {
				t.Errorf("%q: reference: got %t, want %t", tt.msg, got, tt.want)
			}
		})
	}
}

// Of every size around those at which something changes the last words are kept.
func TestUsageOfEverySize(t *testing.T) {
	w := newWalker(t)
	for _, around := range []int{8, usageKept, 2 * usageKept, window - 30} {
		for n := max(around-20, 3); n < around+20; n++ {
			data := make([]byte, n)
			for i := range data {
				data[i] = byte('0' + i%77)
			}
			msg := framed(string(data) + "1}}\n\n")
			if len(msg) > window {
				break // the verdict refuses these before it looks
			}
			if end, ok := w.usage(t, []byte(msg)); !ok || end != keptOf(msg) {
				t.Errorf("%d bytes: %t, kept %q, want %q", len(msg), ok, end, keptOf(msg))
			}
		}
	}
}
