package splice_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tautline/tautline/bpf"
	"github.com/tautline/tautline/userspace/splice"
)

func get(t testing.TB, r *rig, host string) (string, error) {
	t.Helper()
	req, err := http.NewRequest("GET", "http://"+r.addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func TestStream(t *testing.T) {
	r := newRig(t)
	var want strings.Builder
	var msgs []string
	for i := range 100 {
		d := fmt.Sprintf("data: chunk %d %s\n\n", i, strings.Repeat("x", i*7))
		want.WriteString(d)
		msgs = append(msgs, chunk(d))
	}
	e := newEngine(t, func(c net.Conn, _ *http.Request) bool {
		if !send(c, head) {
			return false
		}
		for _, m := range msgs {
			if !send(c, m) {
				return false
			}
			time.Sleep(2 * time.Millisecond)
		}
		return send(c, last)
	})
	for range 3 {
		got, err := get(t, r, e.addr)
		if err != nil {
			t.Fatal(err)
		}
		if got != want.String() {
			t.Fatalf("got %d bytes, want %d", len(got), want.Len())
		}
	}
	t.Log(r.counts())
	if n := r.ended(splice.Ended, splice.Spliced); n != 3 {
		t.Fatalf("%d responses spliced, want 3", n)
	}
	if n := r.counts()[bpf.Redirected].Events; n < 280 {
		t.Errorf("%d of 300 chunks redirected", n)
	}
}

func TestSelfTest(t *testing.T) {
	d := openDatapath(t)
	for _, c := range splice.SelfTest(t.Context(), d.Maps(), splice.Default()) {
		t.Logf("%-12s %v %s", c.Name, c.OK, c.Detail)
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
	}
	live, err := d.Maps().Live()
	if err != nil || len(live) != 0 {
		t.Errorf("left behind: %v, %v", live, err)
	}
}
