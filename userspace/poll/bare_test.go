package poll

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
)

// bareEngine answers with a stored page and list, at little cost.
type bareEngine struct {
	addr string
	ln   net.Listener
	wg   sync.WaitGroup
}

func newBareEngine() *bareEngine {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // a test binary without loopback
	}
	e := &bareEngine{addr: ln.Addr().String(), ln: ln}
	answer := func(body string) []byte {
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	page, list := answer(string(vllmPage(1))), answer(listing)
	e.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			e.wg.Go(func() { e.serve(c, page, list) })
		}
	})
	return e
}

func (e *bareEngine) serve(c net.Conn, page, list []byte) {
	defer func() { _ = c.Close() }()
	r := bufio.NewReader(c)
	for {
		answer := page
		for first := true; ; first = false {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if first && strings.Contains(line, "/v1/models") {
				answer = list
			}
			if line == "\r\n" {
				break
			}
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

func (e *bareEngine) close() { _ = e.ln.Close() }
