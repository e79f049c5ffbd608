package peers

import (
	"context"
	"fmt"
)

// haproxyConfig forwards each part of an answer at once, and keeps connections
// to the server.
const haproxyConfig = `
global
  maxconn %[1]d
%[2]s
defaults
  mode http
  option http-keep-alive
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout http-request 30s
frontend clients
  bind %[3]s
  default_backend servers
backend servers
  server server %[4]s
`

// haproxyStarter takes the number of threads; 0 = HAProxy's own choice, one per CPU.
func haproxyStarter(threads int) func(context.Context, Env) (*Peer, error) {
	return func(ctx context.Context, e Env) (*Peer, error) {
		path, err := lookup("haproxy")
		if err != nil {
			return nil, err
		}
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		n := ""
		if threads > 0 {
			n = fmt.Sprintf("  nbthread %d\n", threads)
		}
		conf, err := writeFile(e, "haproxy.cfg", fmt.Sprintf(haproxyConfig, e.Conns+64, n, addr, e.Upstream))
		if err != nil {
			return nil, err
		}
		proc, err := run(ctx, e, []string{path, "-db", "-f", conf}, forwards(addr))
		if err != nil {
			return nil, err
		}
		return &Peer{Addr: addr, proc: proc}, nil
	}
}
