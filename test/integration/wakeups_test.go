package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/maps"
	"github.com/tautline/tautline/tools/bench/usage"
)

// TestWakeups counts how often sockets wake the agent while it relays responses of
// 300 tokens, one after the other on the same two connections, and does nothing
// else. Three things must wake it: the request, the head, the end. The first token
// comes with the head or, from engines behind ASGI servers, which send their head
// before the prefill, later. From the moment at which the agent is ready, which the
// engine here awaits, no token wakes it. (One that comes earlier, while the agent is
// busy with what came before, does once more.) Nor does the event that tells the usage,
// where the client asks for it.
//
// What the Go runtime does with its threads besides is logged, not judged: it depends
// on what else the machine does.
func TestWakeups(t *testing.T) {
	const want = 3
	for name, tt := range map[string]struct {
		alone bool
		more  string
	}{
		"head with the first token": {},
		"head alone":                {alone: true},
		"usage":                     {more: askUsage},
		"head alone and usage":      {alone: true, more: askUsage},
	} {
		t.Run(name, func(t *testing.T) {
			pins := bpffs(t) + "/tautline"
			e := startWaiting(t, pins, tt.alone)
			// Polls would wake it too.
			a := startAgent(t, pins, []string{e.ln.Addr().String()}, nil, "poll: {interval: 1h, window: 1h}")
			defer http.DefaultClient.CloseIdleConnections() // those of startAgent and idle
			m := newMeter(t, a.cmd.Process.Pid)
			e.ask(t, a.addr, tt.more) // connects and dials
			a.idle()
			if m.read(t).network == 0 {
				t.Fatal("the agent's system calls are not seen: is this a pid namespace?")
			}
			slept, before := threads(t, a), m.read(t)
			for range *answers {
				e.ask(t, a.addr, tt.more)
			}
			got, n := m.read(t).minus(before), float64(*answers)
			t.Logf("%d responses of %d tokens: %.2f wake-ups by sockets each; the runtime woke its own poller %.2f times, looked or woke for a timer %.2f times, and a thread slept and woke %.1f times",
				*answers, waitingTokens, float64(got.network)/n, float64(got.self)/n, float64(got.empty)/n, float64(threads(t, a)-slept)/n)
			if got.network > uint64(want**answers) {
				t.Errorf("%d wake-ups for %d responses, want %d for each at most", got.network, *answers, want)
			}
			if st := a.idle(); st.Splice.Outcomes["ended/spliced"] != uint64(*answers)+1 {
				t.Errorf("responses were not spliced: %v", st.Splice.Outcomes)
			}
			reported := ""
			if tt.more != "" {
				reported = strconv.Itoa(7 * (*answers + 1))
			}
			if n := a.metric("tautline_reported_prompt_tokens_total"); n != reported && (reported != "" || n != "0") {
				t.Errorf("the engine is held to have reported %q prompt tokens, want %q", n, reported)
			}
			a.end()
		})
	}
}

// A waiting engine answers one request at a time and takes its next step when the
// agent and the client have come to an end of theirs.
type waiting struct {
	ln    net.Listener
	alone bool
	head  chan struct{} // the client has the head
	first chan struct{} // it has the first token; nil: not asked
	pins  string
	c     *http.Client
	text  string // of the body
}

const waitingTokens = 300

// askUsage is what asks for the event that tells the usage.
const askUsage = `"stream_options":{"include_usage":true},`

func startWaiting(t *testing.T, pins string, alone bool) *waiting {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &waiting{ln: ln, alone: alone, head: make(chan struct{}, 1), pins: pins, c: &http.Client{Transport: &http.Transport{}}}
	for i := range waitingTokens {
		e.text += e.token(i)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go e.serve(t, c) // ends with the agent
		}
	}()
	t.Cleanup(func() {
		e.c.CloseIdleConnections()
		ln.Close()
		<-done
	})
	return e
}

func (e *waiting) token(i int) string {
	if i == waitingTokens-1 {
		return `data: {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":306,"completion_tokens":299}}` + "\n\n"
	}
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"token %d\"}}]}\n\n", i)
}

func (e *waiting) serve(t *testing.T, c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if req.Method == http.MethodGet {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(modelsText), modelsText)
			continue
		}
		first := chunk(e.token(0))
		if e.alone {
			_, err = io.WriteString(c, streamHead)
			<-e.head
			await(t, "the agent to be ready", e.armed)
		} else {
			first = streamHead + first
		}
		if err == nil {
			_, err = io.WriteString(c, first)
		}
		if !e.alone {
			await(t, "the agent to be ready", e.armed)
		}
		if e.first != nil {
			<-e.first
		}
		for i := 1; i < waitingTokens && err == nil; i++ {
			time.Sleep(time.Duration(float64(time.Second) / *rate))
			_, err = io.WriteString(c, chunk(e.token(i)))
		}
		if err == nil {
			_, err = io.WriteString(c, "0\r\n\r\n")
		}
		if err != nil {
			t.Errorf("engine: %v", err)
			return
		}
	}
}

// armed tells whether the agent has offered the kernel to take over.
func (e *waiting) armed() bool {
	set, err := maps.Open(e.pins)
	if err != nil {
		return false
	}
	defer set.Close()
	n := 0
	err = set.Arms(func(maps.Conn, bpf.Arm) bool { n++; return true })
	return err == nil && n == 1
}

// ask has one response and compares it; more are members of the request's body.
func (e *waiting) ask(t *testing.T, addr, more string) {
	t.Helper()
	resp := e.post(t, addr, more)
	defer resp.Body.Close()
	if e.alone {
		e.head <- struct{}{}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(body) != e.text {
		t.Fatalf("status %d, %d bytes, want %d: %v", resp.StatusCode, len(body), len(e.text), err)
	}
}

// post asks for one; more are members of its body.
func (e *waiting) post(t *testing.T, addr, more string) *http.Response {
	t.Helper()
	resp, err := e.c.Post("http://"+addr+"/v1/chat/completions", "application/json", strings.NewReader(
		`{"model":"soak","stream":true,`+more+`"messages":[{"role":"user","content":"tell"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// threads is how often threads of the agent have slept and woken since it started.
func threads(t *testing.T, a *agent) int64 {
	t.Helper()
	u, err := usage.Of(a.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return u.Switches
}
