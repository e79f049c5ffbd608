package splice

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

const frameHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

func frameChunk(n int) string { return fmt.Sprintf("%x\r\n%s\r\n", n, strings.Repeat("d", n)) }

func TestFramer(t *testing.T) {
	for name, tt := range map[string]struct {
		in    string
		state frameState
		body  int64
	}{
		"nothing":              {"", frameStatusLine, 0},
		"half a head":          {"HTTP/1.1 200 OK\r\nTransfer-Enc", frameHeader, 0},
		"head":                 {frameHead, frameSize, 0},
		"head with bare LF":    {"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n", frameSize, 0},
		"other case":           {"HTTP/1.1 200 OK\r\ntRANSFER-eNCODING:   Chunked \r\n\r\n", frameSize, 0},
		"early hints":          {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + frameHead, frameSize, 0},
		"continue":             {"HTTP/1.1 100 Continue\r\n\r\n", frameStatusLine, 0},
		"chunked on 1xx only":  {"HTTP/1.1 103 X\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", frameLost, 0},
		"long header":          {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 5000) + "\r\nTransfer-Encoding: chunked\r\n\r\n", frameSize, 0},
		"fixed length":         {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", frameLost, 0},
		"gzip, chunked":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", frameLost, 0},
		"chunked twice":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", frameLost, 0},
		"not HTTP":             {"SSH-2.0-OpenSSH_9.2\r\n", frameLost, 0},
		"HTTP/2":               {"HTTP/2.0 200 OK\r\n", frameLost, 0},
		"one chunk":            {frameHead + frameChunk(10), frameSize, 10},
		"half a size":          {frameHead + frameChunk(10) + "1", frameSize, 10},
		"inside data":          {frameHead + "a\r\n0123", frameData, 4},
		"no end of data":       {frameHead + "a\r\n0123456789", frameDataCR, 10},
		"end":                  {frameHead + frameChunk(10) + "0\r\n\r\n", frameDone, 10},
		"trailers":             {frameHead + frameChunk(10) + "0\r\nX: y\r\n\r\n", frameDone, 10},
		"half the trailers":    {frameHead + frameChunk(10) + "0\r\nX: y\r\n", frameTrailer, 10},
		"behind the end":       {frameHead + frameChunk(10) + "0\r\n\r\nHTTP", frameLost, 10},
		"extension":            {frameHead + "5;x=y\r\nhello\r\n", frameLost, 0},
		"nine digits":          {frameHead + "000000005\r\n", frameLost, 0},
		"no digits":            {frameHead + "\r\n", frameLost, 0},
		"bare LF behind size":  {frameHead + "5\nhello\r\n", frameLost, 0},
		"data longer than it":  {frameHead + "5\r\nhello!\r\n", frameLost, 5},
		"CR without LF in end": {frameHead + "5\r\nhello\r!", frameLost, 5},
	} {
		t.Run(name, func(t *testing.T) {
			var f framer
			f.feed([]byte(tt.in))
			if f.state != tt.state || f.body != tt.body {
				t.Errorf("state %d, %d bytes; want %d, %d", f.state, f.body, tt.state, tt.body)
			}
			// However it is cut, it is the same.
			r := rand.New(rand.NewPCG(1, 2))
			for range 50 {
				var g framer
				for rest := []byte(tt.in); len(rest) > 0; {
					n := 1 + r.IntN(min(len(rest), 1+r.IntN(20)))
					g.feed(rest[:n])
					rest = rest[n:]
				}
				if g.state != f.state || g.body != f.body || g.boundary() != f.boundary() {
					t.Fatalf("cut: state %d, %d bytes", g.state, g.body)
				}
			}
		})
	}
}

// On a boundary is: the bytes so far with a terminator are a whole response, whose
// body is as long as the framer says. net/http is the reference.
func FuzzFramer(f *testing.F) {
	f.Add([]byte(frameHead + frameChunk(3) + frameChunk(20)))
	f.Add([]byte("HTTP/1.1 103 Early Hints\r\n\r\n" + frameHead + "a\r\n0123456789\r\n"))
	f.Add([]byte("HTTP/1.0 200 OK\nTransfer-Encoding:chunked\n\n1\r\nx\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var fr framer
		fr.feed(in)
		var bytewise framer
		for i := range in {
			bytewise.feed(in[i : i+1])
		}
		if fr.state != bytewise.state || fr.body != bytewise.body {
			t.Fatalf("in one: state %d, %d bytes; by bytes: %d, %d", fr.state, fr.body, bytewise.state, bytewise.body)
		}
		if !fr.boundary() {
			return
		}
		br := bufio.NewReader(bytes.NewReader(append(bytes.Clone(in), "0\r\n\r\n"...)))
		resp, err := http.ReadResponse(br, nil)
		for err == nil && resp.StatusCode < 200 {
			resp, err = http.ReadResponse(br, nil)
		}
		if err != nil {
			return // net/http refuses the head: then nobody begins to splice
		}
		if len(resp.TransferEncoding) == 0 {
			return // a status without a body, or HTTP/1.0: likewise
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n != fr.body {
			t.Errorf("net/http reads %d bytes, %v; the framer %d", n, err, fr.body)
		}
	})
}
