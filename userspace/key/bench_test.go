package key

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const prose = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. "

// code is source text as a chat client sends it: a newline, tabs and quotes
// every few words.
const code = "\tif err := run(ctx, \"serve\", args...); err != nil {\n\t\treturn fmt.Errorf(\"run %q: %w\", name, err)\n\t}\n"

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// ascii is quoted with all but ASCII escaped, as Python's json.dumps does.
func ascii(s string) string {
	var b strings.Builder
	for _, r := range quoted(s) {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

func fill(s string, size int) string { return strings.Repeat(s, size/len(s)+1)[:size] }

func chatBody(rest, content string) string {
	return `{"model":"m",` + rest + `"messages":[{"role":"user","content":` + content + `}],"stream":true}`
}

func toolSchema(i int) string {
	return fmt.Sprintf(`{"type":"function","function":{"name":"tool_%d","description":"Read a file from the local file system. The path must be absolute.","parameters":{"type":"object","properties":{"file_path":{"type":"string","description":"The absolute path to the file"},"offset":{"type":"integer","minimum":0},"limit":{"type":"integer","exclusiveMinimum":0,"maximum":2000}},"required":["file_path"],"additionalProperties":false}}}`, i)
}

// toolsBody is full of JSON: every tool list and every call's arguments stay
// under the canonical limit.
func toolsBody(size int) string {
	var m []string
	for n := 0; n < size; {
		one := `{"role":"developer","content":"","tools":[` + toolSchema(n) + "," + toolSchema(n+1) + "," + toolSchema(n+2) + `]},` +
			`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"edit","arguments":` +
			quoted(`{"file_path":"/src/main.go","old_string":"return err","new_string":"return fmt.Errorf(\"read: %w\", err)","replace_all":false}`) + `}}]},` +
			`{"role":"tool","tool_call_id":"call_1","content":"done"}`
		m = append(m, one)
		n += len(one)
	}
	return `{"model":"m","messages":[` + strings.Join(m, ",") + `]}`
}

// agentBody is a coding agent's request late in its session: a large tool
// list, a long system prompt and many turns.
func agentBody(turns int) string {
	var tools, m []string
	for i := range 40 {
		tools = append(tools, toolSchema(i))
	}
	m = append(m, `{"role":"system","content":`+quoted(fill(prose, 20<<10))+`}`)
	for i := range turns {
		m = append(m,
			`{"role":"assistant","content":"Let me look at that file.","tool_calls":[{"id":"call_`+fmt.Sprint(i)+`","type":"function","function":{"name":"read","arguments":`+quoted(fmt.Sprintf(`{"file_path":"/src/file_%d.go","limit":200}`, i))+`}}]}`,
			`{"role":"tool","tool_call_id":"call_`+fmt.Sprint(i)+`","content":`+quoted(fill(code, 1500))+`}`)
	}
	return `{"model":"m","stream":true,"tools":[` + strings.Join(tools, ",") + `],"messages":[` + strings.Join(m, ",") + `]}`
}

func benchBodies() []sample {
	const mb = 1 << 20
	return []sample{
		{"plain", APIChat, chatBody("", quoted(fill(prose, mb)))},
		{"escapes", APIChat, chatBody("", quoted(fill(code, mb)))},
		{"unicode", APIChat, chatBody("", quoted(fill("人类的一切智慧是包含在这四个字里面的：等待和希望。", mb/3*3)))},
		{"unicode-escaped", APIChat, chatBody("", ascii(fill("人类的一切智慧是包含在这四个字里面的：等待和希望。", mb/6*3)))},
		{"tools", APIChat, toolsBody(mb)},
		{"small", APIChat, chatBody(`"temperature":0.2,`, quoted(fill(prose, 8<<10)))},
		{"agent", APIChat, agentBody(110)},
		{"image", APIChat, chatBody("", `[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+fill("iVBORw0KGgoAAAANSUhEUgAA", mb)+`"}},{"type":"text","text":`+quoted(fill(prose, 4096))+`}]`)},
		{"tokens", APICompletions, `{"model":"m","prompt":[` + strings.Repeat("15043,", mb/6) + `1]}`},
	}
}

// measure runs one over and over and reports bytes per second of the thread's
// own CPU time, which other processes on the machine do not stretch.
func measure(b *testing.B, size int, one func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		one()
	}
	spent := cpuTime(b) - start
	b.ReportMetric(float64(size)*float64(b.N)/1e6/spent.Seconds(), "MB/cpu-s")
}

func cpuTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

func BenchmarkRead(b *testing.B) {
	h := NewHasher(testSecret, Options{TokenArrays: true})
	for _, s := range benchBodies() {
		b.Run(s.name, func(b *testing.B) {
			body := []byte(s.body)
			var p Prompt
			measure(b, len(body), func() { h.Read(s.api, body, &p) })
			if p.Reason != ReasonNone {
				b.Fatal(p.Reason)
			}
		})
	}
}

// BenchmarkDecode is encoding/json on the same bodies: the yardstick where the
// machine is noisy.
func BenchmarkDecode(b *testing.B) {
	for _, s := range benchBodies() {
		b.Run(s.name, func(b *testing.B) {
			body := []byte(s.body)
			measure(b, len(body), func() {
				var v any
				if err := json.Unmarshal(body, &v); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}
